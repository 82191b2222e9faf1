// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Head and cross-entropy, a chunk of tokens at a time: the [tokens, vocabulary] logits
/// are never stored.
///
/// Legend: T tokens, D hidden, V vocabulary.

#include <cstdint>

#include "pleat/model/context.hpp"

namespace pleat::model {

/// \brief Tokens whose logits are held at once.
std::int64_t head_chunk_tokens(std::int64_t vocab, std::int64_t tokens, std::size_t scalar_bytes);

/// \brief loss() += sum of the token losses.
template <class T>
void head_forward(const Context& context, const MicroBatch& batch,
                  const DeviceView<const T, 2>& head_VD, const DeviceView<const T, 2>& x_TD,
                  const DeviceView<double, 0>& loss);

/// \brief The same, and the gradients at once, so that each chunk's logits are computed only
/// once: dx_TD is overwritten, dhead_VD accumulates.
/// \param scale  1 / (valid tokens of the global batch)
template <class T>
void head_forward_backward(const Context& context, const MicroBatch& batch, double scale,
                           const DeviceView<const T, 2>& head_VD,
                           const DeviceView<const T, 2>& x_TD, const DeviceView<T, 2>& dx_TD,
                           const DeviceView<T, 2>& dhead_VD, const DeviceView<double, 0>& loss);

}  // namespace pleat::model
