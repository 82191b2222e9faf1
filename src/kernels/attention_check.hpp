// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A problem, fixed once and for all, by which a library's attention is compared with
/// the products' before it is used: wrong attention must never train silently.

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
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  auto operator<=>(const CheckedCase&) const = default;
};

/// \brief That of a shape; of a sequence that is very long its beginning.
CheckedCase checked_case(const GraphShape& shape);

/// \brief Compares; waits for `exec`.
/// \param run  queues the library's attention and says what failed; empty where nothing did
/// \return what is against the library, as "o is off by ..."; empty where it agrees
std::string check_attention(
    const ExecSpace& exec, const CheckedCase& checked,
    const std::function<std::string(const GraphShape&, const GraphArrays&)>& run);

/// \brief Columns [first, first + count) of an array.
template <class T>
struct Columns {
  DeviceView<T, 2> rows;
  std::int64_t first, count;
};

/// \brief The largest difference, as a share of the largest expected element of the same
/// column in the same 128 rows, or of `least` where that is more; infinite where an element of
/// either array is not finite. Waits for `exec`. T: Bf16, float
template <class T>
double largest_difference(const ExecSpace& exec, const Columns<T>& actual,
                          const Columns<T>& expected, double least);

}  // namespace pleat::kernels
