// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Model folders of the Hugging Face library: config.json and safetensors files of
/// Mixtral, Qwen2-MoE and Qwen3-MoE.

#include <string>

#include "pleat/io/element_type.hpp"
#include "pleat/io/safetensors.hpp"
#include "pleat/plan/model_config.hpp"
#include "pleat/tensor/flat_tensors.hpp"

namespace pleat::io {

struct HuggingFaceConfig {
  plan::ModelConfig model;
  ElementType type = ElementType::kF32;  ///< `dtype`, older `torch_dtype`
  std::string text;                      ///< config.json as it was found
};

/// \brief True for a folder with a config.json.
bool is_hugging_face_folder(const std::string& path);

/// \brief Reads FOLDER/config.json. The auxiliary coefficient is taken from
/// `router_aux_loss_coef`; the z-loss is not known to these families and stays 0.
/// \throws InputError PL0406 unreadable or ill-typed, PL0407 a family or an option
/// (sliding
///   window, rope scaling, attention bias, another activation, ...) that Pleat does not
///   have, PL0410 two keys that say the same thing differently
HuggingFaceConfig read_hugging_face_config(const std::string& folder);
/// \brief The same from the text. \param place  for messages
HuggingFaceConfig parse_hugging_face_config(const std::string& text,
                                            const std::string& place);

/// \brief The text of a config.json, readable by transformers 4.5x and 5.
/// \param original  text of the config.json that the model came from, whose other keys
/// are
///   kept, or empty
std::string hugging_face_config_text(const plan::ModelConfig& model, ElementType type,
                                     const std::string& original);

/// \brief Checks that the files hold exactly the model's tensors in its shapes.
/// \throws InputError PL0408 names the first that are missing, unexpected or misshapen,
///   the files, and what to do
void check_hugging_face_tensors(const SafetensorsReader& reader,
                                const tensor::ParameterLayout& layout);

/// \brief Reads this rank's part of every parameter of `whole`; others stay as they are.
/// \param whole  layout of the whole model, which the files must hold
/// \throws InputError PL0401 to PL0408
template <class T>
void load_hugging_face_weights(const std::string& folder, const tensor::ParameterLayout& whole,
                               const tensor::FlatTensors<T>& weights);

}  // namespace pleat::io
