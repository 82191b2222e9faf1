// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Cross-entropy of a chunk of tokens. Legend: C tokens of the chunk, V vocabulary.

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

}  // namespace pleat::kernels
