// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The spellings of config.json, for the sources of hugging_face.hpp.

#include <array>
#include <utility>

#include "pleat/io/element_type.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::io::detail {

inline constexpr std::array<std::pair<plan::Family, const char*>, 3> kFamilyNames{
    {{plan::Family::kMixtral, "mixtral"},
     {plan::Family::kQwen2Moe, "qwen2_moe"},
     {plan::Family::kQwen3Moe, "qwen3_moe"}}};

inline constexpr std::array<std::pair<ElementType, const char*>, 4> kTypeNames{
    {{ElementType::kF64, "float64"},
     {ElementType::kF32, "float32"},
     {ElementType::kF16, "float16"},
     {ElementType::kBf16, "bfloat16"}}};

}  // namespace pleat::io::detail
