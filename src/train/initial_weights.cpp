// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/initial_weights.hpp"

#include "pleat/io/checkpoint.hpp"
#include "pleat/io/hugging_face.hpp"

namespace pleat::train {

template <class T>
std::string load_initial_weights(const RunConfig& config, Engine<T>& engine) {
  const std::string& init = config.model_init;
  if (init.empty()) {
    engine.initialise();
    return {};
  }
  std::string text;
  const tensor::FlatTensors<T> weights = engine.store().whole_weights();
  if (io::is_hugging_face_folder(init)) {
    text = io::read_hugging_face_config(init).text;
    // These families know no router bias; it begins at zero.
    plan::ModelConfig known = config.model;
    known.moe.bias_update_rate = 0.0;
    io::load_hugging_face_weights<T>(init, *model::parameter_layout(known), weights);
  } else {
    const auto whole = model::parameter_layout(config.model);
    text = io::load_parameters<T>(init, *whole, weights).hugging_face_config;
  }
  engine.store().set_weights(weights);
  return text;
}

template std::string load_initial_weights<float>(const RunConfig&, Engine<float>&);
template std::string load_initial_weights<double>(const RunConfig&, Engine<double>&);

}  // namespace pleat::train
