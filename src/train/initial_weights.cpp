// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/initial_weights.hpp"

#include <array>

#include "host_shards.hpp"
#include "pleat/io/hugging_face.hpp"

namespace pleat::train {

namespace {

/// Every rank reads the boxes that it holds.
template <class T>
std::string from_hugging_face(const RunConfig& config, Engine<T>& engine) {
  using M = Master<T>;
  const tensor::FlatTensors<M> weights = engine.store().whole_weights();
  // These families know no router bias; it begins at zero.
  plan::ModelConfig known = config.model;
  known.moe.bias_update_rate = 0.0;
  io::load_hugging_face_weights<M>(config.model_init, *model::parameter_layout(known), weights);
  engine.store().set_weights(weights);
  return io::read_hugging_face_config(config.model_init).text;
}

template <class T>
std::string from_checkpoint(const RunConfig& config, Engine<T>& engine) {
  constexpr std::array kWeights{io::TensorGroup::kParameters};
  io::CheckpointLoader loader(config.model_init, engine.grid().files());
  loader.require_tensors(kWeights.front(), *model::parameter_layout(config.model));
  read_shards<T>(loader, kWeights, engine);
  return loader.info().hugging_face_config;
}

}  // namespace

template <class T>
std::string load_initial_weights(const RunConfig& config, Engine<T>& engine) {
  const std::string& init = config.model_init;
  if (init.empty()) {
    engine.initialise();
    return {};
  }
  return io::is_hugging_face_folder(init) ? from_hugging_face(config, engine)
                                          : from_checkpoint(config, engine);
}

template std::string load_initial_weights<float>(const RunConfig&, Engine<float>&);
template std::string load_initial_weights<double>(const RunConfig&, Engine<double>&);
template std::string load_initial_weights<Bf16>(const RunConfig&, Engine<Bf16>&);

}  // namespace pleat::train
