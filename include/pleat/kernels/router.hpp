// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Top-k routing, the statistics of its balance, and the losses formed from them.
///
/// Legend: T tokens of this rank, E experts, K experts per token, G groups of consecutive
/// tokens over which the losses average (1 for a micro-batch, B for its sequences); their
/// tokens may be spread over ranks. All router arithmetic is in the accumulator type A.

#include <cstdint>

#include "pleat/base/arena.hpp"
#include "pleat/base/types.hpp"

namespace pleat::kernels {

enum class Score { kSoftmaxBeforeTopK, kSoftmaxAfterTopK, kSigmoid };

struct RouterOptions {
  std::int64_t top_k = 1;
  Score score = Score::kSoftmaxBeforeTopK;
  bool normalize = true;  ///< weights of a token divided by their sum
  /// Equal runs of experts, 64 at most; a token chooses within the best top_groups of
  /// them, by the sum of the two best scores plus bias of each; ties go to the lower
  /// group.
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  double scale = 1.0;  ///< factor of all weights, applied last; positive
};

/// \brief Chooses the top_k experts of each token, in falling order of logits, or of
/// score plus bias where bias_E is not empty; ties go to the lower index. The bias does
/// not enter the weights (Wang et al., arXiv 2408.15664). scores_TE is the softmax over
/// all experts in both softmax modes, the sigmoid of each logit in the other (the losses
/// use it). Tokens with real_T = 0 (padding) get index -1 and weight 0.
template <class A>
void router_forward(const ExecSpace& exec, const RouterOptions& options,
                    const DeviceView<const A, 2>& logits_TE,
                    const DeviceView<const A, 1>& bias_E,
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

/// \brief Which rows belong together: row t is of group (first_row + t) / rows, among
/// `groups`. A rank may hold part of a group, or nothing of it.
struct RowGroups {
  std::int64_t groups = 1;
  std::int64_t rows = 0;
  std::int64_t first_row = 0;
};

/// \brief What the losses need, over real tokens only. The four views are, in this order,
/// one buffer of groups * (2 E + 2) numbers, so that one sum reduces them over ranks.
template <class A>
struct RouterStatistics {
  DeviceView<double, 1> all;        ///< the buffer
  DeviceView<double, 2> counts_GE;  ///< (token, choice) pairs sent to each expert
  DeviceView<double, 2> probability_sum_GE;  ///< sum of scores; of scores / sum of a
                                             ///< token's scores in the sigmoid mode
  DeviceView<double, 1> z_sum_G;             ///< sum of logsumexp(logits)^2
  DeviceView<double, 1> tokens_G;            ///< real tokens
};

/// \brief Statistics in memory of the arena, not yet filled.
template <class A>
RouterStatistics<A> take_router_statistics(Arena& arena, std::int64_t groups,
                                           std::int64_t experts);

/// \brief Overwrites the statistics with those of this rank's rows; sums have a fixed
/// order.
template <class A>
void router_statistics(const ExecSpace& exec, Score score, const RowGroups& rows,
                       const DeviceView<const A, 2>& logits_TE,
                       const DeviceView<const A, 2>& scores_TE,
                       const DeviceView<const std::int32_t, 2>& index_TK,
                       const DeviceView<const std::uint8_t, 1>& real_T, Arena& scratch,
                       const RouterStatistics<A>& statistics);

/// Coefficients of the two losses; each loss is the mean over the groups.
struct RouterLossOptions {
  double auxiliary_coefficient = 0.0;
  double z_coefficient = 0.0;
  std::int64_t top_k = 1;
  Score score = Score::kSoftmaxBeforeTopK;
};

/// \brief losses(0) += auxiliary loss, losses(1) += z-loss, coefficients included: mean
/// over groups of coefficient E sum_e f_e P_e and of coefficient mean_t logsumexp^2
/// (Fedus et al., arXiv 2101.03961; Zoph et al., arXiv 2202.08906). A group without real
/// tokens contributes 0.
template <class A>
void router_losses(const ExecSpace& exec, const RouterLossOptions& options,
                   const RouterStatistics<A>& statistics,
                   const DeviceView<double, 1>& losses);

/// \brief dlogits_TE += scale times the gradient of both losses, for this rank's rows;
/// the statistics are those of all rows of the groups, whichever rank holds them.
template <class A>
void router_losses_backward(const ExecSpace& exec, const RouterLossOptions& options,
                            double scale, const RowGroups& rows,
                            const DeviceView<const A, 2>& logits_TE,
                            const DeviceView<const A, 2>& scores_TE,
                            const DeviceView<const std::uint8_t, 1>& real_T,
                            const RouterStatistics<A>& statistics,
                            const DeviceView<A, 2>& dlogits_TE);

}  // namespace pleat::kernels
