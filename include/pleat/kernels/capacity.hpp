// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Which (token, choice) pairs an expert takes when it takes no more than so many.
///
/// Legend: N rows (tokens), K experts per token, E experts.

#include <cstdint>

#include "pleat/base/arena.hpp"
#include "pleat/base/types.hpp"
#include "pleat/kernels/router.hpp"

namespace pleat::kernels {

struct CapacityOptions {
  std::int64_t experts = 1;
  double factor = 1.0;    ///< of the pairs that an expert gets when all get the same
  bool by_weight = true;  ///< the heaviest pairs are taken; otherwise the first ones
};

/// \brief ceil(rows top_k / experts factor): pairs that an expert takes of so many rows.
KOKKOS_INLINE_FUNCTION std::int64_t expert_capacity(const CapacityOptions& options,
                                                    std::int64_t rows,
                                                    std::int64_t top_k) {
  const double even =
      static_cast<double>(rows * top_k) / static_cast<double>(options.experts);
  return static_cast<std::int64_t>(Kokkos::ceil(even * options.factor));
}

/// \brief sent_NK = index_NK, but -1 for the pairs that exceed what their expert takes of
/// the rows of their group: expert_capacity of the rows of that group that lie here,
/// padding or not. Pairs with index -1 take no place. Equal weights, and all pairs
/// without by_weight, go by row, then by choice. Weights are compared to 33 (fp32: 17)
/// significant bits: what is equal in exact arithmetic, as for a token that is repeated at
/// the start of a sequence, must not be told apart by rounding, which depends on the mapping. No host synchronisation; the work is
/// that of a few tens of passes over the pairs. \param weight_NK  not negative; may be
/// empty without by_weight
template <class A>
void mark_over_capacity(const ExecSpace& exec, const CapacityOptions& options,
                        const RowGroups& rows,
                        const DeviceView<const std::int32_t, 2>& index_NK,
                        const DeviceView<const A, 2>& weight_NK, Arena& scratch,
                        const DeviceView<std::int32_t, 2>& sent_NK);

}  // namespace pleat::kernels
