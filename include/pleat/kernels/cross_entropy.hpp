// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Cross-entropy of a chunk of tokens, over the whole vocabulary or over a slice of it.
/// Legend: C tokens of the chunk, V vocabulary, or the slice that this rank holds.

#include <cstdint>

#include "pleat/base/arena.hpp"
#include "pleat/base/types.hpp"

namespace pleat::kernels {

/// \brief loss() += sum over tokens with mask 1 of logsumexp(logits) - logits[label], in fp64
/// and in a fixed order.
template <class T>
void cross_entropy_forward(const ExecSpace& exec, const DeviceView<const T, 2>& logits_CV,
                           const DeviceView<const std::int32_t, 1>& labels_C,
                           const DeviceView<const std::uint8_t, 1>& loss_mask_C, Arena& scratch,
                           const DeviceView<double, 0>& loss);

/// \brief The same, and logits_CV becomes its own gradient times `scale` (the reciprocal of
/// the number of valid tokens of the global batch); 0 where the mask is 0.
template <class T>
void cross_entropy_forward_backward(const ExecSpace& exec, double scale,
                                    const DeviceView<const std::int32_t, 1>& labels_C,
                                    const DeviceView<const std::uint8_t, 1>& loss_mask_C,
                                    Arena& scratch, const DeviceView<T, 2>& logits_CV,
                                    const DeviceView<double, 0>& loss);

// Over a vocabulary that is split: logits_CV holds entries first_entry .. first_entry + V - 1
// (V may be 0). Between the parts the caller reduces max_C (maximum) and sums_C2 (sum) over
// the ranks that hold the slices; every rank then finds the same loss.

/// \brief max_C = largest logit of the slice (lowest number for an empty slice).
template <class T>
void cross_entropy_max(const ExecSpace& exec, const DeviceView<const T, 2>& logits_CV,
                       const DeviceView<Accumulator<T>, 1>& max_C);

/// \brief sums_C2 = sum over the slice of exp(logit - max), and the label's logit (0 where the
/// label lies in another slice).
template <class T>
void cross_entropy_sums(const ExecSpace& exec, std::int64_t first_entry,
                        const DeviceView<const T, 2>& logits_CV,
                        const DeviceView<const std::int32_t, 1>& labels_C,
                        const DeviceView<const Accumulator<T>, 1>& max_C,
                        const DeviceView<Accumulator<T>, 2>& sums_C2);

/// \brief loss() += sum over tokens with mask 1 of max + log(sum) - label's logit, in fp64 and
/// in a fixed order.
template <class T>
void cross_entropy_loss(const ExecSpace& exec, const DeviceView<const Accumulator<T>, 1>& max_C,
                        const DeviceView<const Accumulator<T>, 2>& sums_C2,
                        const DeviceView<const std::uint8_t, 1>& loss_mask_C, Arena& scratch,
                        const DeviceView<double, 0>& loss);

/// \brief logits_CV becomes the gradient times `scale`; 0 where the mask is 0.
template <class T>
void cross_entropy_gradient(const ExecSpace& exec, double scale, std::int64_t first_entry,
                            const DeviceView<const std::int32_t, 1>& labels_C,
                            const DeviceView<const std::uint8_t, 1>& loss_mask_C,
                            const DeviceView<const Accumulator<T>, 1>& max_C,
                            const DeviceView<const Accumulator<T>, 2>& sums_C2,
                            const DeviceView<T, 2>& logits_CV);

}  // namespace pleat::kernels
