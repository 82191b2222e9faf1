// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Bringing the tokens of one expert together, and back.
///
/// Legend: T tokens, K experts per token, E experts, R rows after permutation (at most T
/// K; fewer where tokens are padding), D hidden, S segments.

#include <cstdint>

#include "pleat/base/arena.hpp"
#include "pleat/base/types.hpp"

namespace pleat::kernels {

/// \brief Where each (token, choice) pair goes: rows sorted by expert, then by token,
/// then by choice. Pairs with index -1 get row -1.
struct Permutation {
  DeviceView<std::int64_t, 1> offsets_E1;  ///< [E + 1] first row of each expert; last: R
  DeviceView<std::int64_t, 2> row_TK;      ///< row of the pair, or -1
};

/// \brief Stable counting sort. No host synchronisation.
void make_permutation(const ExecSpace& exec,
                      const DeviceView<const std::int32_t, 2>& index_TK,
                      std::int64_t experts, Arena& scratch,
                      const Permutation& permutation);

/// \brief Gives every expert exactly `rows` rows: its pairs keep their order, the rows
/// after them belong to no pair. Ends the program when an expert has more pairs than
/// that: whoever pads drops first.
void pad_permutation(const ExecSpace& exec,
                     const DeviceView<const std::int32_t, 2>& index_TK, std::int64_t rows,
                     const Permutation& permutation);

/// \brief In place: the choices among the `count` experts from `first` on are numbered
/// e = 0 .. count - 1, all others become -1. With tokens_per_source > 0 the number is
/// e sources + t / tokens_per_source, so that a sort separates an expert's sources too.
void select_experts(const ExecSpace& exec, const DeviceView<std::int32_t, 2>& index_TK,
                    std::int64_t first, std::int64_t count,
                    std::int64_t tokens_per_source = 0);

/// \brief x_RD[row] = x_TD[token of row]; rows that belong to no pair are left alone.
template <class T>
void permute_rows(const ExecSpace& exec, const Permutation& permutation,
                  const DeviceView<const T, 2>& x_TD, const DeviceView<T, 2>& x_RD);

/// \brief y_TD = sum over the choices of a token of y_RD[row], in the order of the
/// choices. It is also the gradient of permute_rows.
template <class T>
void unpermute_sum(const ExecSpace& exec, const Permutation& permutation,
                   const DeviceView<const T, 2>& y_RD, const DeviceView<T, 2>& y_TD);

/// \brief value_R[row] = value_TK[pair of row]: carries the routing weights along.
template <class A>
void permute_values(const ExecSpace& exec, const Permutation& permutation,
                    const DeviceView<const A, 2>& value_TK,
                    const DeviceView<A, 1>& value_R);

/// \brief value_TK[pair of row] = value_R[row]; pairs without a row get 0.
template <class A>
void unpermute_values(const ExecSpace& exec, const Permutation& permutation,
                      const DeviceView<const A, 1>& value_R,
                      const DeviceView<A, 2>& value_TK);

/// \brief Segments of rows that move as they are: to_R[from + i] = to + i for i < length,
/// where (from, to, length) are the columns of segments_S3.
void place_segments(const ExecSpace& exec,
                    const DeviceView<const std::int64_t, 2>& segments_S3,
                    const DeviceView<std::int64_t, 1>& to_R);

/// \brief y_RD[to_R[r]] = x_RD[r].
template <class T>
void scatter_rows(const ExecSpace& exec, const DeviceView<const std::int64_t, 1>& to_R,
                  const DeviceView<const T, 2>& x_RD, const DeviceView<T, 2>& y_RD);

/// \brief y_RD[r] = x_RD[from_R[r]].
template <class T>
void gather_rows(const ExecSpace& exec, const DeviceView<const std::int64_t, 1>& from_R,
                 const DeviceView<const T, 2>& x_RD, const DeviceView<T, 2>& y_RD);

}  // namespace pleat::kernels
