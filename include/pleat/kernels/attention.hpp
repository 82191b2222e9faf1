// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Causal grouped-query attention, blockwise with online softmax: nothing of size
/// S x S is stored, forward or backward (Dao, FlashAttention-2, arXiv 2307.08691).
///
/// Legend: B sequences, S positions, T = B S tokens, H query heads, G key/value heads,
/// d head dimension, Q = (H + 2 G) d one row of the fused projection: q heads, then k heads,
/// then v heads; O = H d.

#include <cstdint>

#include "pleat/base/arena.hpp"
#include "pleat/base/types.hpp"

namespace pleat::kernels {

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t tokens() const { return batch * sequence; }
  std::int64_t row_size() const { return (heads + 2 * kv_heads) * head_dim; }
};

/// \brief o_TO = softmax(scale q k^T) v per head; query head h reads key/value head
/// h / (H / G). lse_HT keeps the logarithm of each softmax's denominator for the backward pass.
/// \param scratch  for tiles; given back on return
template <class T>
void attention_forward(const ExecSpace& exec, const AttentionShape& shape, Accumulator<T> scale,
                       const DeviceView<const T, 2>& qkv_TQ, Arena& scratch,
                       const DeviceView<T, 2>& o_TO,
                       const DeviceView<Accumulator<T>, 2>& lse_HT);

/// \brief Gradient of attention_forward. Overwrites all of dqkv_TQ.
template <class T>
void attention_backward(const ExecSpace& exec, const AttentionShape& shape, Accumulator<T> scale,
                        const DeviceView<const T, 2>& qkv_TQ, const DeviceView<const T, 2>& o_TO,
                        const DeviceView<const Accumulator<T>, 2>& lse_HT,
                        const DeviceView<const T, 2>& do_TO, Arena& scratch,
                        const DeviceView<T, 2>& dqkv_TQ);

}  // namespace pleat::kernels
