// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Head and cross-entropy, a chunk of tokens at a time: the [tokens, vocabulary] logits
/// are never stored. With tensor parallelism each rank has a slice of the vocabulary, sees all
/// rows of its context rank, and finds the same loss as the others.
///
/// Legend: T, U rows, D hidden, V this rank's slice of the vocabulary.

#include <cstdint>

#include "pleat/model/context.hpp"

namespace pleat::model {

/// \brief Tokens whose logits are held at once.
std::int64_t head_chunk_tokens(std::int64_t vocab, std::int64_t tokens, std::size_t scalar_bytes);

/// \brief The slices of the vocabulary.
struct Vocabulary {
  std::int64_t first = 0;    ///< entry of the first row of this rank's slice
  std::int64_t largest = 0;  ///< rows of the largest slice: all ranks take the same chunks
};

/// \brief loss() += sum of the token losses of this context rank. Collective over tp.
template <class T>
void head_forward(const Context& context, const MicroBatch& batch, const Vocabulary& vocabulary,
                  const DeviceView<const T, 2>& head_VD, const DeviceView<const T, 2>& x_TD,
                  const DeviceView<double, 0>& loss);

/// \brief The same, and the gradients at once, so that each chunk's logits are computed only
/// once: dx_TD is overwritten; dhead_VD accumulates, times Context::gradient_beta() before.
/// Collective over tp.
/// \param scale  1 / (valid tokens of the global batch)
template <class T>
void head_forward_backward(const Context& context, const MicroBatch& batch,
                           const Vocabulary& vocabulary, double scale,
                           const DeviceView<const T, 2>& head_VD,
                           const DeviceView<const T, 2>& x_TD, const DeviceView<T, 2>& dx_TD,
                           const DeviceView<Gradient<T>, 2>& dhead_VD, const DeviceView<double, 0>& loss);

}  // namespace pleat::model
