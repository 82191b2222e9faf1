// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief One small problem, fixed once and for all, by which a library's attention is
/// compared with the products' before it is used: wrong attention must never train silently.

#include <compare>
#include <functional>
#include <string>

#include "attention_graphs.hpp"
#include "pleat/base/types.hpp"

namespace pleat::kernels {

/// \brief What decides about the code that a library runs, as far as can be told.
struct CheckedCase {
  bool backward = false;
  bool lse_apart = false;  ///< the rows of lse hold more than one sequence
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  auto operator<=>(const CheckedCase&) const = default;
};

CheckedCase checked_case(const GraphShape& shape);

struct AttentionCheck {
  bool agrees = false;
  std::string finding;  ///< what did not
};

/// \brief Compares; waits for `exec`.
/// \param run  queues the library's attention; false where it refuses
AttentionCheck check_attention(
    const ExecSpace& exec, const CheckedCase& checked,
    const std::function<bool(const GraphShape&, const GraphArrays&)>& run);

}  // namespace pleat::kernels
