// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/transformer.hpp"

#include "pleat/kernels/elementwise.hpp"
#include "pleat/kernels/embedding.hpp"
#include "pleat/kernels/gemm.hpp"
#include "pleat/kernels/rms_norm.hpp"
#include "pleat/model/head.hpp"

namespace pleat::model {
namespace {

using kernels::Transpose;
using plan::Recompute;

template <class T>
bool finite(const ExecSpace& exec, const DeviceView<T, 2>& x_TD) {
  return !kernels::has_non_finite<T>(exec, DeviceView<const T, 1>(x_TD.data(), x_TD.size()));
}

RouterSums layer_sums(const StepSums& sums, std::int64_t layer) {
  const auto experts = sums.counts_LE.extent(1);
  return {DeviceView<double, 1>(sums.router_losses_L2.data() + 2 * layer, 2),
          DeviceView<double, 1>(
              sums.counts_LE.data() + layer * static_cast<std::int64_t>(experts), experts)};
}

}  // namespace

StepSums::StepSums(const plan::ModelConfig& config)
    : cross_entropy("pleat::model::cross_entropy"),
      router_losses_L2("pleat::model::router_losses", config.layers, 2),
      counts_LE("pleat::model::counts", config.layers, config.moe.experts) {}

void StepSums::reset(const ExecSpace& exec) const {
  Kokkos::deep_copy(exec, cross_entropy, 0.0);
  Kokkos::deep_copy(exec, router_losses_L2, 0.0);
  Kokkos::deep_copy(exec, counts_LE, 0.0);
}

template <class T>
Transformer<T>::Transformer(const plan::ModelConfig& config, std::int64_t sequence,
                            Recompute recompute)
    : config_(config),
      recompute_(recompute),
      rope_(kernels::make_rope_tables<T>(sequence, config.head_dim, config.rope_theta)),
      dispatcher_(make_local_dispatcher<T>(config.moe.experts)),
      workspace_(std::make_unique<Workspace>()),
      activations_(static_cast<std::size_t>(config.layers)),
      block_input_TD_(static_cast<std::size_t>(config.layers + 1)) {}

template <class T>
Context Transformer<T>::context(const ExecSpace& exec, Arena& saved, Recompute recompute) {
  return {exec, saved, workspace_->scratch, times_, recompute};
}

template <class T>
DeviceView<T, 2> Transformer<T>::embed(const Context& context, const MicroBatch& batch,
                                       const ModelTensors<T>& weights) {
  const PhaseScope phase(times_, Phase::kEmbedding);
  const auto x_TD = context.saved.take<T>(batch.tokens(), config_.hidden);
  kernels::embedding_forward<T>(context.exec, batch.tokens_T, weights.embedding_VD, x_TD);
  return x_TD;
}

template <class T>
DeviceView<T, 2> Transformer<T>::run_blocks(const Context& outer, const MicroBatch& batch,
                                            const ModelTensors<T>& weights,
                                            const StepSums* sums, DeviceView<T, 2> x_TD) {
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const auto l = static_cast<std::size_t>(layer);
    block_input_TD_[l] = x_TD;
    const auto y_TD = workspace_->saved.take<T>(batch.tokens(), config_.hidden);
    const ArenaScope dropped(workspace_->recomputed);
    const Context inner = recompute_ == Recompute::kFull
                              ? context(outer.exec, workspace_->recomputed, Recompute::kSelective)
                              : outer;
    const RouterSums router_sums = sums != nullptr ? layer_sums(*sums, layer) : RouterSums{};
    block_forward<T>(inner, setup(), layer, batch, weights.blocks[l], x_TD, activations_[l],
                     sums != nullptr ? &router_sums : nullptr, y_TD);
    x_TD = y_TD;
  }
  block_input_TD_.back() = x_TD;
  return x_TD;
}

template <class T>
DeviceView<T, 2> Transformer<T>::final_norm(const Context& context,
                                            const ModelTensors<T>& weights,
                                            const DeviceView<T, 2>& x_TD) {
  const PhaseScope phase(times_, Phase::kHead);
  const auto normed_TD = context.saved.take<T>(x_TD.extent(0), x_TD.extent(1));
  final_inverse_rms_T_ = context.saved.take<Accumulator<T>>(x_TD.extent(0));
  kernels::rms_norm_forward<T>(context.exec, x_TD, weights.final_norm_D, config_.norm_eps,
                               normed_TD, final_inverse_rms_T_);
  return normed_TD;
}

template <class T>
void Transformer<T>::block_backward_from_kept(const Context& kept, std::int64_t layer,
                                              const MicroBatch& batch,
                                              const ModelTensors<T>& weights,
                                              double router_loss_scale,
                                              const ModelTensors<T>& gradients,
                                              const DeviceView<T, 2>& dx_TD) {
  const auto l = static_cast<std::size_t>(layer);
  const ArenaScope scope(workspace_->recomputed);
  if (recompute_ != Recompute::kFull) {
    block_backward<T>(kept, setup(), layer, batch, weights.blocks[l], activations_[l],
                      router_loss_scale, gradients.blocks[l], dx_TD);
    return;
  }
  const Context again = context(kept.exec, workspace_->recomputed, Recompute::kNone);
  const auto y_TD = workspace_->recomputed.take<T>(batch.tokens(), config_.hidden);
  block_forward<T>(again, setup(), layer, batch, weights.blocks[l], block_input_TD_[l],
                   activations_[l], nullptr, y_TD);
  block_backward<T>(again, setup(), layer, batch, weights.blocks[l], activations_[l],
                    router_loss_scale, gradients.blocks[l], dx_TD);
}

template <class T>
void Transformer<T>::forward_backward(const ExecSpace& exec, const MicroBatch& batch,
                                      const LossScales& scales, const ModelTensors<T>& weights,
                                      const ModelTensors<T>& gradients, const StepSums& sums) {
  const ArenaScope scope(workspace_->saved);
  const Context kept = context(exec, workspace_->saved, recompute_);
  const auto x_TD = run_blocks(kept, batch, weights, &sums, embed(kept, batch, weights));
  const auto normed_TD = final_norm(kept, weights, x_TD);

  const ArenaScope scratch_scope(workspace_->scratch);
  const auto dx_TD = workspace_->scratch.take<T>(batch.tokens(), config_.hidden);
  {
    const ArenaScope head_scope(workspace_->scratch);
    const auto dnormed_TD = workspace_->scratch.take<T>(batch.tokens(), config_.hidden);
    head_forward_backward<T>(kept, batch, scales.cross_entropy, weights.head_VD, normed_TD,
                             dnormed_TD, gradients.head_VD, sums.cross_entropy);
    const PhaseScope phase(times_, Phase::kHead);
    Kokkos::deep_copy(exec, dx_TD, T(0));
    kernels::rms_norm_backward<T>(exec, x_TD, weights.final_norm_D, final_inverse_rms_T_,
                                  dnormed_TD, workspace_->scratch, dx_TD,
                                  gradients.final_norm_D);
  }
  for (std::int64_t layer = config_.layers - 1; layer >= 0; --layer) {
    block_backward_from_kept(kept, layer, batch, weights, scales.router, gradients, dx_TD);
  }
  const PhaseScope phase(times_, Phase::kEmbedding);
  kernels::embedding_backward<T>(exec, batch.tokens_T, dx_TD, gradients.embedding_VD);
}

template <class T>
void Transformer<T>::evaluate(const ExecSpace& exec, const MicroBatch& batch,
                              const ModelTensors<T>& weights, const StepSums& sums) {
  const ArenaScope scope(workspace_->saved);
  const Context kept = context(exec, workspace_->saved, recompute_);
  const auto x_TD = run_blocks(kept, batch, weights, &sums, embed(kept, batch, weights));
  head_forward<T>(kept, batch, weights.head_VD, final_norm(kept, weights, x_TD),
                  sums.cross_entropy);
}

template <class T>
void Transformer<T>::logits(const ExecSpace& exec, const MicroBatch& batch,
                            const ModelTensors<T>& weights, const DeviceView<T, 2>& logits_TV) {
  const ArenaScope scope(workspace_->saved);
  const Context kept = context(exec, workspace_->saved, recompute_);
  const auto x_TD = run_blocks(kept, batch, weights, nullptr, embed(kept, batch, weights));
  kernels::gemm<T>(exec, Transpose::kNo, Transpose::kYes, T(1), final_norm(kept, weights, x_TD),
                   weights.head_VD, T(0), logits_TV);
}

template <class T>
std::int64_t Transformer<T>::first_non_finite(const ExecSpace& exec, const MicroBatch& batch,
                                              const ModelTensors<T>& weights) {
  const ArenaScope scope(workspace_->saved);
  const Context kept = context(exec, workspace_->saved, recompute_);
  const auto x_TD = run_blocks(kept, batch, weights, nullptr, embed(kept, batch, weights));
  for (std::int64_t i = 0; i <= config_.layers; ++i) {
    if (!finite<T>(exec, block_input_TD_[static_cast<std::size_t>(i)])) return i;
  }
  return finite<T>(exec, final_norm(kept, weights, x_TD)) ? -1 : config_.layers + 1;
}

template class Transformer<float>;
template class Transformer<double>;

}  // namespace pleat::model
