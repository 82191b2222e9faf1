// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The formulas of docs/dispatcher.md: bytes that leave ranks for one token in one
/// layer of a forward pass, when every expert is chosen equally often.

#include <cstdint>

namespace pleat::test {

struct TokenBytes {
  double hidden = 0.0;       ///< D
  double element_bytes = 2;  ///< of a number that travels
  double top_k = 0.0;        ///< K

  double token() const { return hidden * element_bytes; }

  /// \brief All-gather and reduce-scatter around something that is split over tp: each
  /// token goes to tp - 1 others, and as many partial sums come back.
  double split(double tp) const { return 2.0 * (tp - 1.0) * token(); }
  /// \brief All-to-all there and back: a row stays where it is once in ep times.
  double experts(double ep) const { return 2.0 * top_k * (ep - 1.0) / ep * token(); }
  /// \brief All-gather and reduce-scatter of the rows over the shards of an expert.
  double shards(double etp) const { return 2.0 * top_k * (etp - 1.0) * token(); }
  /// \brief All of it by the all-gather dispatcher: every token to every rank, once.
  double gathered(double ranks) const { return 2.0 * (ranks - 1.0) * token(); }
};

}  // namespace pleat::test
