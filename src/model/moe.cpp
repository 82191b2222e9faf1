// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/moe.hpp"

#include "pleat/base/copy.hpp"
#include "pleat/kernels/elementwise.hpp"
#include "pleat/kernels/gemm.hpp"
#include "pleat/kernels/swiglu.hpp"
#include "pleat/model/drop.hpp"
#include "rounding.hpp"

namespace pleat::model {
namespace {

using kernels::Transpose;

kernels::Score score_of(plan::RouterScore score) {
  switch (score) {
    case plan::RouterScore::kSoftmaxBeforeTopK:
      return kernels::Score::kSoftmaxBeforeTopK;
    case plan::RouterScore::kSoftmaxAfterTopK:
      return kernels::Score::kSoftmaxAfterTopK;
    case plan::RouterScore::kSigmoid:
      return kernels::Score::kSigmoid;
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown router score");
}

kernels::RouterOptions router_options(const plan::MoeConfig& moe) {
  return {.top_k = moe.top_k,
          .score = score_of(moe.score),
          .normalize = moe.normalize,
          .groups = moe.groups,
          .top_groups = moe.top_groups,
          .scale = moe.routed_scale};
}

kernels::RouterLossOptions loss_options(const plan::MoeConfig& moe) {
  return {.auxiliary_coefficient = moe.auxiliary_coefficient,
          .z_coefficient = moe.z_coefficient,
          .top_k = moe.top_k,
          .score = score_of(moe.score)};
}

bool has_router_losses(const plan::MoeConfig& moe) {
  return moe.auxiliary_coefficient != 0.0 || moe.z_coefficient != 0.0;
}

/// The rows over which the losses average.
kernels::RowGroups row_groups(const plan::MoeConfig& moe, const MicroBatch& batch) {
  if (moe.auxiliary_scope == plan::AuxiliaryScope::kSequence) {
    return {batch.sequences, batch.sequence, batch.first_row};
  }
  return {1, batch.gathered_tokens(), batch.first_row};
}

/// counts_E += the first row of counts_GE and so on.
void count_pairs(const ExecSpace& exec, const DeviceView<const double, 2>& counts_GE,
                 const DeviceView<double, 1>& counts_E) {
  const auto groups = static_cast<int>(counts_GE.extent(0));
  Kokkos::parallel_for(
      "pleat::model::count_pairs",
      Kokkos::RangePolicy<ExecSpace>(exec, 0, counts_E.extent(0)),
      KOKKOS_LAMBDA(const int e) {
        for (int g = 0; g < groups; ++g) counts_E(e) += counts_GE(g, e);
      });
}

/// running_C += statistics_C, then statistics_C = running_C.
void accumulate(const ExecSpace& exec, const DeviceView<double, 1>& statistics_C,
                const DeviceView<double, 1>& running_C) {
  Kokkos::parallel_for(
      "pleat::model::accumulate",
      Kokkos::RangePolicy<ExecSpace>(exec, 0, running_C.extent(0)),
      KOKKOS_LAMBDA(const int i) {
        running_C(i) += statistics_C(i);
        statistics_C(i) = running_C(i);
      });
}

/// dropped() += pairs that were chosen but are not sent. Whole numbers: any order gives
/// the same.
void count_dropped(const ExecSpace& exec,
                   const DeviceView<const std::int32_t, 2>& index_TK,
                   const DeviceView<const std::int32_t, 2>& sent_TK, Arena& scratch,
                   const DeviceView<double, 0>& dropped) {
  const ArenaScope scope(scratch);
  const DeviceView<double, 0> count(scratch.take<double>(1).data());
  const std::int32_t* const index = index_TK.data();
  const std::int32_t* const sent = sent_TK.data();
  Kokkos::parallel_reduce(
      "pleat::model::count_dropped",
      Kokkos::RangePolicy<ExecSpace>(exec, 0, index_TK.size()),
      KOKKOS_LAMBDA(const std::size_t i, double& sum) {
        sum += index[i] >= 0 && sent[i] < 0 ? 1.0 : 0.0;
      },
      count);
  Kokkos::parallel_for(
      "pleat::model::add_dropped", Kokkos::RangePolicy<ExecSpace>(exec, 0, 1),
      KOKKOS_LAMBDA(const int) { dropped() += count(); });
}

/// Statistics of the balance over all ranks of the scope, and the losses.
template <class T>
void sum_statistics(const Context& context, const plan::MoeConfig& moe,
                    const MicroBatch& batch, MoeActivations<T>& activations,
                    const LayerSums& sums) {
  using A = Accumulator<T>;
  const auto rows = row_groups(moe, batch);
  auto& statistics = activations.statistics;
  statistics = kernels::take_router_statistics<A>(context.kept, rows.groups, moe.experts);
  kernels::router_statistics<A>(context.exec, score_of(moe.score), rows,
                                activations.logits_TE, activations.scores_TE,
                                activations.index_TK, batch.real_T, context.scratch,
                                statistics);
  count_pairs(context.exec, statistics.counts_GE, sums.counts_E);
  if (!has_router_losses(moe)) return;
  const bool global = moe.auxiliary_scope == plan::AuxiliaryScope::kGlobalBatch;
  context.grid
      .group(global ? comm::GroupName::kDataContextTensor
                    : comm::GroupName::kContextTensor)
      .all_reduce(statistics.all, comm::Reduction::kSum);
  if (global) {
    // The loss of the step is that of its tokens so far: the last micro-batch sets it.
    accumulate(context.exec, statistics.all, sums.running_C);
    fill_tensor(context.exec, sums.losses, 0.0);
  }
  if (sums.reports_losses) {
    kernels::router_losses<A>(context.exec, loss_options(moe), statistics, sums.losses);
  }
}

/// What each expert's capacity lets through.
template <class T>
void drop(const Context& context, const plan::MoeConfig& moe, const MicroBatch& batch,
          MoeActivations<T>& activations, const LayerSums* sums) {
  activations.sent_TK = activations.index_TK;
  if (!moe.drop.active()) return;
  activations.sent_TK = context.saved.take<std::int32_t>(batch.tokens(), moe.top_k);
  drop_over_capacity<Accumulator<T>>(context, moe, batch, activations.index_TK,
                                     activations.weight_TK, activations.sent_TK);
  if (sums == nullptr) return;
  count_dropped(context.exec, activations.index_TK, activations.sent_TK, context.scratch,
                sums->dropped);
}

/// Logits, choices and weights; statistics and losses of the balance.
template <class T>
void route(const Context& context, const plan::ModelConfig& config,
           const MicroBatch& batch, const BlockTensors<T>& weights,
           const DeviceView<const T, 2>& x_TD, MoeActivations<T>& activations,
           const LayerSums* sums) {
  using A = Accumulator<T>;
  const PhaseScope phase(context.times, Phase::kRouter);
  const plan::MoeConfig& moe = config.moe;
  const auto tokens = batch.tokens();
  activations.logits_TE = context.saved.take<A>(tokens, moe.experts);
  activations.scores_TE = context.saved.take<A>(tokens, moe.experts);
  activations.index_TK = context.saved.take<std::int32_t>(tokens, moe.top_k);
  activations.weight_TK = context.saved.take<A>(tokens, moe.top_k);
  kernels::gemm<T, A>(context.exec, Transpose::kNo, Transpose::kYes, 1, x_TD,
                      weights.router_ED, 0, activations.logits_TE);
  {
    const ArenaScope scope(context.scratch);
    kernels::router_forward<A>(context.exec, router_options(moe), activations.logits_TE,
                               widened<T>(context, weights.router_bias_E), batch.real_T,
                               activations.scores_TE, activations.index_TK,
                               activations.weight_TK);
  }
  if (sums != nullptr) sum_statistics<T>(context, moe, batch, activations, *sums);
  drop<T>(context, moe, batch, activations, sums);
}

/// The gate and up projections of all experts, in memory of `arena`.
template <class T>
DeviceView<T, 2> project_up(const Context& context, const Dispatcher<T>& dispatcher,
                            const DispatchRecord& record, const BlockTensors<T>& weights,
                            const DeviceView<const T, 2>& x_TD, Arena& arena,
                            const Meanwhile& meanwhile = {}) {
  const auto gate_up_R2F = arena.take<T>(record.rows, weights.w13_E2FD.extent(1));
  const ArenaScope scope(context.scratch);
  const auto x_RD = context.scratch.take<T>(record.rows, x_TD.extent(1));
  {
    const PhaseScope phase(context.times, Phase::kDispatch);
    dispatcher.dispatch(context.exec, record, x_TD, context.scratch, x_RD, meanwhile);
  }
  const PhaseScope phase(context.times, Phase::kExperts);
  kernels::grouped_gemm_rows<T>(context.exec, Transpose::kYes, 1, x_RD,
                                weights.w13_E2FD, 0, gate_up_R2F, record.offsets());
  return gate_up_R2F;
}

/// y_TD += what the routed experts contribute.
template <class T>
void routed_forward(const Context& context, const Dispatcher<T>& dispatcher,
                    const BlockTensors<T>& weights, const DeviceView<const T, 2>& x_TD,
                    MoeActivations<T>& activations, const DeviceView<T, 2>& y_TD,
                    const Meanwhile& meanwhile) {
  auto& record = activations.record;
  {
    const PhaseScope phase(context.times, Phase::kDispatch);
    dispatcher.plan(context.exec, activations.sent_TK, context.saved, context.scratch,
                    record);
    activations.weight_R = context.saved.take<Accumulator<T>>(record.rows);
    dispatcher.dispatch_weights(context.exec, record, activations.weight_TK,
                                context.scratch, activations.weight_R);
  }
  const ArenaScope scope(context.scratch);
  // Kept memory is taken before any scratch, so that this also holds when both are one
  // arena.
  activations.gate_up_R2F = project_up<T>(context, dispatcher, record, weights, x_TD,
                                          context.inner(), meanwhile);
  const auto y_RD = context.scratch.take<T>(record.rows, x_TD.extent(1));
  {
    const PhaseScope phase(context.times, Phase::kExperts);
    const auto h_RF = context.scratch.take<T>(record.rows, weights.w2_EDF.extent(2));
    kernels::swiglu_forward<T>(context.exec, activations.gate_up_R2F,
                               activations.weight_R, h_RF);
    kernels::grouped_gemm_rows<T>(context.exec, Transpose::kYes, 1, h_RF,
                                  weights.w2_EDF, 0, y_RD, record.offsets());
  }
  const PhaseScope phase(context.times, Phase::kDispatch);
  const auto routed_TD = context.scratch.take<T>(x_TD.extent(0), x_TD.extent(1));
  dispatcher.combine(context.exec, record, y_RD, context.scratch, routed_TD);
  kernels::add_in_place<T>(context.exec, routed_TD, y_TD);
}

/// y_TD += what the shared expert contributes.
template <class T>
void shared_forward(const Context& context, const plan::ModelConfig& config,
                    const BlockTensors<T>& weights, const DeviceView<const T, 2>& x_TD,
                    MoeActivations<T>& activations, const DeviceView<T, 2>& y_TD) {
  const PhaseScope phase(context.times, Phase::kDenseFfn);
  if (!config.moe.shared_gate) {
    feed_forward<T>(context, weights.shared, x_TD, activations.shared, 1, y_TD);
    return;
  }
  activations.shared_gate_T1 = context.saved.take<T>(x_TD.extent(0), 1);
  activations.shared_out_TD = context.saved.take<T>(x_TD.extent(0), x_TD.extent(1));
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kYes, 1, x_TD,
                   weights.shared_gate_1D, 0, activations.shared_gate_T1);
  feed_forward<T>(context, weights.shared, x_TD, activations.shared, 0,
                  activations.shared_out_TD);
  kernels::add_sigmoid_gated<T>(context.exec, activations.shared_gate_T1,
                                activations.shared_out_TD, y_TD);
}

/// Through the down projections and SwiGLU: the kept gate and up projections become their
/// gradients.
template <class T>
void project_down_backward(const Context& context, const BlockTensors<T>& weights,
                           const MoeActivations<T>& activations,
                           const DeviceView<T, 2>& gate_up_R2F,
                           const DeviceView<const T, 2>& dy_RD,
                           const BlockTensors<Gradient<T>>& gradients,
                           const DeviceView<Accumulator<T>, 1>& dweight_R) {
  const PhaseScope phase(context.times, Phase::kExperts);
  const ArenaScope scope(context.scratch);
  const DispatchRecord& record = activations.record;
  const auto dh_RF = context.scratch.take<T>(record.rows, weights.w2_EDF.extent(2));
  kernels::grouped_gemm_rows<T>(context.exec, Transpose::kNo, 1, dy_RD, weights.w2_EDF, 0,
                                dh_RF, record.offsets());
  // In place: gate_up becomes its gradient, dh becomes h.
  kernels::swiglu_backward<T>(context.exec, gate_up_R2F, activations.weight_R, dh_RF,
                              gate_up_R2F, dh_RF, dweight_R);
  kernels::grouped_gemm_weights<T>(context.exec, 1, dy_RD, dh_RF, context.gradient_beta(),
                                   gradients.w2_EDF, record.offsets());
}

/// dx_TD (overwritten) and dweight_TK through the routed experts. `shared`, the way back of a
/// shared expert, runs while the first rows travel: it writes dx_TD, and the routed experts
/// add to that.
template <class T>
void routed_backward(const Context& context, const Dispatcher<T>& dispatcher,
                     const BlockTensors<T>& weights, const DeviceView<const T, 2>& x_TD,
                     const MoeActivations<T>& activations,
                     const DeviceView<const T, 2>& dy_TD,
                     const BlockTensors<Gradient<T>>& gradients,
                     const DeviceView<Accumulator<T>, 2>& dweight_TK,
                     const DeviceView<T, 2>& dx_TD, const Meanwhile& shared) {
  const ArenaScope scope(context.scratch);
  const DispatchRecord& record = activations.record;
  const auto gate_up_R2F =
      context.keeps_inner()
          ? activations.gate_up_R2F
          : project_up<T>(context, dispatcher, record, weights, x_TD, context.scratch);
  const auto row_RD = context.scratch.take<T>(record.rows, x_TD.extent(1));
  {
    const PhaseScope phase(context.times, Phase::kDispatch);
    dispatcher.dispatch(context.exec, record, dy_TD, context.scratch, row_RD, shared);
  }
  const auto dweight_R = context.scratch.take<Accumulator<T>>(record.rows);
  project_down_backward<T>(context, weights, activations, gate_up_R2F, row_RD, gradients,
                           dweight_R);
  {
    const PhaseScope phase(context.times, Phase::kDispatch);
    dispatcher.return_weights(context.exec, record, dweight_R, context.scratch,
                              dweight_TK);
    dispatcher.dispatch(context.exec, record, x_TD, context.scratch, row_RD);
  }
  {
    const PhaseScope phase(context.times, Phase::kExperts);
    kernels::grouped_gemm_weights<T>(context.exec, 1, gate_up_R2F, row_RD,
                                     context.gradient_beta(), gradients.w13_E2FD,
                                     record.offsets());
    kernels::grouped_gemm_rows<T>(context.exec, Transpose::kNo, 1, gate_up_R2F,
                                  weights.w13_E2FD, 0, row_RD, record.offsets());
  }
  const PhaseScope phase(context.times, Phase::kDispatch);
  const auto routed_TD =
      shared ? context.scratch.take<T>(dx_TD.extent(0), dx_TD.extent(1)) : dx_TD;
  dispatcher.combine(context.exec, record, row_RD, context.scratch, routed_TD);
  if (shared) kernels::add_in_place<T>(context.exec, routed_TD, dx_TD);
}

/// dx_TD += through the router, by its choices' weights and by its losses.
template <class T>
void route_backward(const Context& context, const plan::ModelConfig& config,
                    const MicroBatch& batch, const BlockTensors<T>& weights,
                    const DeviceView<const T, 2>& x_TD,
                    const MoeActivations<T>& activations, double router_loss_scale,
                    const DeviceView<const Accumulator<T>, 2>& dweight_TK,
                    const BlockTensors<Gradient<T>>& gradients, const DeviceView<T, 2>& dx_TD) {
  using A = Accumulator<T>;
  const PhaseScope phase(context.times, Phase::kRouter);
  const ArenaScope scope(context.scratch);
  const auto dlogits_TE = context.scratch.take<A>(batch.tokens(), config.moe.experts);
  kernels::router_backward<A>(context.exec, router_options(config.moe),
                              activations.scores_TE, activations.index_TK,
                              activations.weight_TK, dweight_TK, dlogits_TE);
  if (has_router_losses(config.moe)) {
    kernels::router_losses_backward<A>(context.exec, loss_options(config.moe),
                                       router_loss_scale, row_groups(config.moe, batch),
                                       activations.logits_TE, activations.scores_TE,
                                       batch.real_T, activations.statistics, dlogits_TE);
  }
  const auto rounded_TE = rounded<T>(context, dlogits_TE);
  kernels::gemm<T, Gradient<T>>(context.exec, Transpose::kYes, Transpose::kNo, 1, rounded_TE,
                                x_TD, 1, gradients.router_ED);
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kNo, 1, rounded_TE,
                   weights.router_ED, 1, dx_TD);
}

/// dx_TD (overwritten) through the shared expert and its gate.
template <class T>
void shared_backward(const Context& context, const plan::ModelConfig& config,
                     const BlockTensors<T>& weights, const DeviceView<const T, 2>& x_TD,
                     const MoeActivations<T>& activations,
                     const DeviceView<const T, 2>& dy_TD,
                     const BlockTensors<Gradient<T>>& gradients, Accumulator<T> beta,
                     const DeviceView<T, 2>& dx_TD) {
  const PhaseScope phase(context.times, Phase::kDenseFfn);
  if (!config.moe.shared_gate) {
    feed_forward_backward<T>(context, weights.shared, x_TD, activations.shared, dy_TD,
                             gradients.shared, beta, dx_TD);
    return;
  }
  const ArenaScope scope(context.scratch);
  const auto dout_TD = context.scratch.take<T>(x_TD.extent(0), x_TD.extent(1));
  const auto dgate_T1 = context.scratch.take<T>(x_TD.extent(0), 1);
  kernels::sigmoid_gated_backward<T>(context.exec, activations.shared_gate_T1,
                                     activations.shared_out_TD, dy_TD, dout_TD, dgate_T1);
  kernels::gemm<T, Gradient<T>>(context.exec, Transpose::kYes, Transpose::kNo, 1, dgate_T1,
                                x_TD, 1, gradients.shared_gate_1D);
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kNo, 1, dgate_T1,
                   weights.shared_gate_1D, beta, dx_TD);
  feed_forward_backward<T>(context, weights.shared, x_TD, activations.shared, dout_TD,
                           gradients.shared, 1, dx_TD);
}

}  // namespace

template <class T>
void moe_forward(const Context& context, const MoeSetup<T>& setup,
                 const MicroBatch& batch, const BlockTensors<T>& weights,
                 const DeviceView<const T, 2>& x_TD, MoeActivations<T>& activations,
                 const LayerSums* sums, const DeviceView<T, 2>& y_TD) {
  route<T>(context, setup.part, batch, weights, x_TD, activations, sums);
  // While the tokens travel, the shared expert runs on those that are here.
  Meanwhile shared;
  if (setup.part.moe.shared_ffn > 0) {
    shared = [&] {
      shared_forward<T>(context, setup.part, weights, x_TD, activations, y_TD);
    };
  }
  routed_forward<T>(context, setup.dispatcher, weights, x_TD, activations, y_TD, shared);
}

template <class T>
void moe_backward(const Context& context, const MoeSetup<T>& setup,
                  const MicroBatch& batch, const BlockTensors<T>& weights,
                  const DeviceView<const T, 2>& x_TD,
                  const MoeActivations<T>& activations, double router_loss_scale,
                  const DeviceView<const T, 2>& dy_TD, const BlockTensors<Gradient<T>>& gradients,
                  const DeviceView<T, 2>& dx_TD) {
  const ArenaScope scope(context.scratch);
  const auto dweight_TK =
      context.scratch.take<Accumulator<T>>(batch.tokens(), setup.part.moe.top_k);
  const auto shared_back = [&](Accumulator<T> beta) {
    shared_backward<T>(context, setup.part, weights, x_TD, activations, dy_TD, gradients,
                       beta, dx_TD);
  };
  // As in the forward pass: while gradients travel, the shared expert works on those that
  // are here. Where none travel it comes last, which rounds dx_TD once less.
  const bool has_shared = setup.part.moe.shared_ffn > 0;
  const bool beside = has_shared && setup.dispatcher.travels();
  Meanwhile shared;
  if (beside) shared = [&] { shared_back(0); };
  routed_backward<T>(context, setup.dispatcher, weights, x_TD, activations, dy_TD,
                     gradients, dweight_TK, dx_TD, shared);
  route_backward<T>(context, setup.part, batch, weights, x_TD, activations,
                    router_loss_scale, dweight_TK, gradients, dx_TD);
  if (has_shared && !beside) shared_back(1);
}

#define PLEAT_INSTANTIATE(T)                                                          \
  template void moe_forward<T>(const Context&, const MoeSetup<T>&, const MicroBatch&, \
                               const BlockTensors<T>&, const DeviceView<const T, 2>&, \
                               MoeActivations<T>&, const LayerSums*,                  \
                               const DeviceView<T, 2>&);                              \
  template void moe_backward<T>(                                                      \
      const Context&, const MoeSetup<T>&, const MicroBatch&, const BlockTensors<T>&,  \
      const DeviceView<const T, 2>&, const MoeActivations<T>&, double,                \
      const DeviceView<const T, 2>&, const BlockTensors<Gradient<T>>&,                \
      const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::model
