// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Rotary position embedding, "rotate half": element i of a head turns with
/// element i + d/2 by the angle position * theta^(-2i/d) (Su et al., arXiv 2104.09864).
///
/// Legend: T tokens, S positions (of a sequence, or of the part of it that a rank holds),
/// d head dimension, Q one row of the fused projection.

#include <cstdint>
#include <vector>

#include "pleat/base/types.hpp"

namespace pleat::kernels {

/// \brief cos and sin of the angles of S positions, computed in fp64, for heads of type T.
template <class T>
struct RopeTables {
  DeviceView<Accumulator<T>, 2> cos_Sd;  ///< [S, d/2]
  DeviceView<Accumulator<T>, 2> sin_Sd;  ///< [S, d/2]
};

/// \brief Row i is for positions[i]: a rank may hold pieces of the sequence.
template <class T>
RopeTables<T> make_rope_tables(const std::vector<std::int64_t>& positions,
                               std::int64_t head_dim, double theta);

/// \brief For positions 0 .. sequence - 1.
template <class T>
RopeTables<T> make_rope_tables(std::int64_t sequence, std::int64_t head_dim,
                               double theta);

enum class Rotation { kForward, kBackward };

/// \brief Turns the first `rotated_heads` heads of each row in place (all query and key
/// heads); token t turns by row t mod S of the tables. kBackward turns the other way,
/// which is the gradient. \param sequence  S
template <class T>
void rope_in_place(const ExecSpace& exec, Rotation rotation, const RopeTables<T>& tables,
                   std::int64_t sequence, std::int64_t rotated_heads,
                   std::int64_t head_dim, const DeviceView<T, 2>& qkv_TQ);

}  // namespace pleat::kernels
