// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Top-k routing, the statistics of its balance, and the losses formed from them.
///
/// Legend: T tokens, E experts, K experts per token, G groups of T/G consecutive tokens over
/// which the losses average (1 for a micro-batch, B for its sequences). All router arithmetic
/// is in the accumulator type A.

#include <cstdint>

#include "pleat/base/arena.hpp"
#include "pleat/base/types.hpp"

namespace pleat::kernels {

struct RouterOptions {
  std::int64_t top_k = 1;
  bool softmax_after_top_k = false;
  bool normalize = true;
};

/// \brief Chooses the top_k largest logits of each token, in falling order; ties go to the
/// lower index. scores_TE is the softmax over all experts in either mode (the losses use it).
/// Tokens with real_T = 0 (padding) get index -1 and weight 0.
template <class A>
void router_forward(const ExecSpace& exec, const RouterOptions& options,
                    const DeviceView<const A, 2>& logits_TE,
                    const DeviceView<const std::uint8_t, 1>& real_T,
                    const DeviceView<A, 2>& scores_TE,
                    const DeviceView<std::int32_t, 2>& index_TK,
                    const DeviceView<A, 2>& weight_TK);

/// \brief dlogits_TE (overwritten) from the gradient of the routing weights.
template <class A>
void router_backward(const ExecSpace& exec, const RouterOptions& options,
                     const DeviceView<const A, 2>& scores_TE,
                     const DeviceView<const std::int32_t, 2>& index_TK,
                     const DeviceView<const A, 2>& weight_TK,
                     const DeviceView<const A, 2>& dweight_TK,
                     const DeviceView<A, 2>& dlogits_TE);

/// \brief What the losses need, over real tokens only.
template <class A>
struct RouterStatistics {
  DeviceView<double, 2> counts_GE;           ///< (token, choice) pairs sent to each expert
  DeviceView<double, 2> probability_sum_GE;  ///< sum of scores
  DeviceView<double, 1> z_sum_G;             ///< sum of logsumexp(logits)^2
  DeviceView<double, 1> tokens_G;            ///< real tokens
};

/// \brief Overwrites the statistics; sums have a fixed order.
template <class A>
void router_statistics(const ExecSpace& exec, const DeviceView<const A, 2>& logits_TE,
                       const DeviceView<const A, 2>& scores_TE,
                       const DeviceView<const std::int32_t, 2>& index_TK,
                       const DeviceView<const std::uint8_t, 1>& real_T, Arena& scratch,
                       const RouterStatistics<A>& statistics);

/// Coefficients of the two losses; each loss is the mean over the groups of the micro-batch.
struct RouterLossOptions {
  double auxiliary_coefficient = 0.0;
  double z_coefficient = 0.0;
  std::int64_t top_k = 1;
};

/// \brief losses(0) += auxiliary loss, losses(1) += z-loss, coefficients included: mean over
/// groups of coefficient E sum_e f_e P_e and of coefficient mean_t logsumexp^2
/// (Fedus et al., arXiv 2101.03961; Zoph et al., arXiv 2202.08906). A group without real
/// tokens contributes 0.
template <class A>
void router_losses(const ExecSpace& exec, const RouterLossOptions& options,
                   const RouterStatistics<A>& statistics, const DeviceView<double, 1>& losses);

/// \brief dlogits_TE += scale times the gradient of both losses.
template <class A>
void router_losses_backward(const ExecSpace& exec, const RouterLossOptions& options,
                            double scale, const DeviceView<const A, 2>& logits_TE,
                            const DeviceView<const A, 2>& scores_TE,
                            const DeviceView<const std::uint8_t, 1>& real_T,
                            const RouterStatistics<A>& statistics,
                            const DeviceView<A, 2>& dlogits_TE);

}  // namespace pleat::kernels
