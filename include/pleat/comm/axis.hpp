// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The axes of the two process grids.

#include <array>
#include <cstddef>

namespace pleat::comm {

/// \brief `kPipeline` belongs to both grids; data, context and tensor to the grid of the
/// attention layers; the last three to the grid of the MoE layers.
enum class Axis : std::size_t {
  kPipeline,
  kData,
  kContext,
  kTensor,
  kExpertData,
  kExpert,
  kExpertTensor,
  kCount
};

inline constexpr std::size_t kAxes = static_cast<std::size_t>(Axis::kCount);

/// The axes of each grid, slowest first.
inline constexpr std::array kAttentionAxes{Axis::kPipeline, Axis::kData, Axis::kContext,
                                           Axis::kTensor};
inline constexpr std::array kMoeAxes{Axis::kPipeline, Axis::kExpertData, Axis::kExpert,
                                     Axis::kExpertTensor};

/// \brief The name in messages and tables.
constexpr const char* axis_name(Axis axis) {
  constexpr std::array<const char*, kAxes> kNames{
      "pipeline", "data", "context", "tensor", "expert_data", "expert", "expert_tensor"};
  return kNames[static_cast<std::size_t>(axis)];
}

}  // namespace pleat::comm
