// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Causal grouped-query attention, blockwise with online softmax: nothing of size
/// S x S is stored, forward or backward (Dao, FlashAttention-2, arXiv 2307.08691).
///
/// Queries and keys come from two arrays, so that the queries of one rank can meet the keys of
/// another piece of the sequence, piece after piece. On one rank both are the fused projection.
///
/// Legend: B sequences, T rows of queries, U rows of keys and values, H query heads, G
/// key/value heads, d head dimension, Q columns of the query array, R of the key/value array,
/// O = H d.

#include <cstdint>

#include "pleat/base/arena.hpp"
#include "pleat/base/types.hpp"

namespace pleat::kernels {

/// \brief Which rows meet: in each sequence b, queries in rows first_query + b query_stride +
/// i, i < queries, and keys in rows first_key + b key_stride + j, j < keys.
struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t first_query = 0;
  std::int64_t query_stride = 0;  ///< rows from one sequence to the next
  std::int64_t first_key = 0;
  std::int64_t key_stride = 0;
  /// Query i sees the keys j <= i + diagonal (at least one, so diagonal >= 0): how many
  /// positions the first query is behind the first key. keys - 1 or more: all of them.
  std::int64_t diagonal = 0;
  std::int64_t k_column = 0;  ///< of the first key head in a row of the key/value array
  std::int64_t v_column = 0;
};

/// \brief Whole sequences in a fused projection: q heads, then k heads, then v heads.
AttentionShape fused_attention_shape(std::int64_t batch, std::int64_t sequence,
                                     std::int64_t heads, std::int64_t kv_heads,
                                     std::int64_t head_dim);

/// \brief Whether o and lse hold the attention to earlier pieces of the keys already.
enum class Pieces { kFirst, kFurther };

/// \brief o_TO = softmax(scale q k^T) v per head, over the keys of this piece and, with
/// kFurther, those before; query head h reads key/value head h / (H / G) and lies in columns
/// h d ... of q_TQ and o_TO. lse_HT keeps the logarithm of each softmax's denominator. Only the
/// rows of the shape are read and written.
/// \param scratch  for tiles; given back on return
template <class T>
void attention_forward(const ExecSpace& exec, const AttentionShape& shape, Accumulator<T> scale,
                       Pieces pieces, const DeviceView<const T, 2>& q_TQ,
                       const DeviceView<const T, 2>& kv_UR, Arena& scratch,
                       const DeviceView<T, 2>& o_TO,
                       const DeviceView<Accumulator<T>, 2>& lse_HT);

/// \brief delta_HT = sum over a head of o do: what attention_backward subtracts, of all rows.
template <class T>
void attention_delta(const ExecSpace& exec, std::int64_t heads, std::int64_t head_dim,
                     const DeviceView<const T, 2>& o_TO, const DeviceView<const T, 2>& do_TO,
                     const DeviceView<Accumulator<T>, 2>& delta_HT);

/// \brief Gradient of one piece, with lse and delta of all pieces together. With kFirst the
/// rows of the shape in dq_TQ (H d columns), and in any case its rows of dkv_UR (G d columns
/// from k_column and from v_column), are overwritten; with kFurther dq_TQ accumulates.
/// \param accumulate_keys  dkv_UR accumulates instead
/// \param o_TO  of all pieces; fused attention forms delta from it by itself
template <class T>
void attention_backward(const ExecSpace& exec, const AttentionShape& shape, Accumulator<T> scale,
                        Pieces pieces, bool accumulate_keys,
                        const DeviceView<const T, 2>& q_TQ, const DeviceView<const T, 2>& kv_UR,
                        const DeviceView<const T, 2>& o_TO,
                        const DeviceView<const Accumulator<T>, 2>& lse_HT,
                        const DeviceView<const Accumulator<T>, 2>& delta_HT,
                        const DeviceView<const T, 2>& do_TO, Arena& scratch,
                        const DeviceView<T, 2>& dq_TQ, const DeviceView<T, 2>& dkv_UR);

}  // namespace pleat::kernels
