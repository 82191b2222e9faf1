// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/transformer.hpp"

#include "pleat/base/copy.hpp"
#include "pleat/kernels/elementwise.hpp"
#include "pleat/kernels/embedding.hpp"
#include "pleat/kernels/gemm.hpp"
#include "pleat/kernels/rms_norm.hpp"
#include "pleat/model/context_attention.hpp"
#include "pleat/model/drop.hpp"
#include "pleat/model/head.hpp"
#include "pleat/model/tensor_rows.hpp"

namespace pleat::model {
namespace {

using comm::Axis;
using kernels::Transpose;
using plan::Recompute;

template <class T>
bool finite(const ExecSpace& exec, const DeviceView<T, 2>& x_TD) {
  return !kernels::has_non_finite<T>(exec, DeviceView<const T, 1>(x_TD.data(), x_TD.size()));
}

bool is_first_backward(const UnitHooks& hooks, std::int64_t unit) {
  return hooks.is_first_backward && hooks.is_first_backward(unit);
}

void call(const std::function<void(std::int64_t)>& hook, std::int64_t unit) {
  if (hook) hook(unit);
}

/// Rows that each expert gets from each rank, where they are filled up to the capacity; else 0.
std::int64_t padded_rows(const plan::MoeConfig& moe, const TransformerOptions& options,
                         const comm::Grid& grid) {
  if (!moe.drop.active() || !moe.drop.pad) return 0;
  MicroBatch batch;
  batch.sequences = options.micro;
  batch.sequence = options.sequence / grid.degree(Axis::kContext);
  const std::int64_t rows = batch.gathered_tokens() / grid.degree(Axis::kTensor);
  batch.first_row = grid.coordinate(Axis::kTensor) * rows;
  batch.real_T = DeviceView<const std::uint8_t, 1>(nullptr, rows);
  return capacity_rows(moe, batch, grid);
}

template <class T>
std::unique_ptr<const Dispatcher<T>> dispatcher_of(const plan::ModelConfig& model,
                                                   const TransformerOptions& options,
                                                   const comm::Grid& grid) {
  const plan::MoeConfig& moe = model.moe;
  if (!model.has_moe_layers()) return make_local_dispatcher<T>(moe.experts);
  return make_dispatcher<T>(options.dispatcher, moe.experts, grid,
                            padded_rows(moe, options, grid));
}

}  // namespace

template <class T>
Transformer<T>::Transformer(const Placement& placement, const comm::Grid& grid,
                            const TransformerOptions& options)
    : placement_(placement),
      grid_(grid),
      recompute_(options.recompute),
      exchange_(options.exchange),
      rope_(kernels::make_rope_tables<T>(
          context_positions(options.sequence, grid.degree(Axis::kContext),
                            grid.coordinate(Axis::kContext)),
          placement.whole.head_dim, placement.whole.rope_theta)),
      dispatcher_(dispatcher_of<T>(placement.whole, options, grid)),
      largest_vocab_(slice_of(placement.whole.vocab, grid.degree(Axis::kTensor), 0).count),
      workspace_(std::make_unique<Workspace>()) {}

template <class T>
Context Transformer<T>::context(const ExecSpace& exec, Flight<T>& flight, Arena& saved,
                                Recompute recompute) {
  return {exec, grid_, flight.kept, saved, workspace_->scratch, times_, recompute};
}

template <class T>
BlockSetup<T> Transformer<T>::setup() const {
  return {placement_.part,
          {placement_.part, rope_, exchange_},
          {placement_.part, *dispatcher_}};
}

template <class T>
Slice Transformer<T>::layers(const Flight<T>& flight) const {
  return placement_.chunks[static_cast<std::size_t>(flight.chunk)];
}

template <class T>
bool Transformer<T>::is_first(const Flight<T>& flight) const {
  return placement_.has_embedding && flight.chunk == 0;
}

template <class T>
bool Transformer<T>::is_last(const Flight<T>& flight) const {
  return placement_.has_head &&
         flight.chunk + 1 == static_cast<std::int64_t>(placement_.chunks.size());
}

template <class T>
void Transformer<T>::begin(Flight<T>& flight, std::int64_t chunk, const MicroBatch& batch,
                           const LossScales& scales) const {
  flight.kept.reset({});
  flight.chunk = chunk;
  flight.batch = batch;
  flight.scales = scales;
  const auto count = static_cast<std::size_t>(layers(flight).count);
  flight.activations.resize(count);
  flight.block_input_TD.resize(count);
  flight.input_TD = flight.kept.template take<T>(batch.tokens(), placement_.whole.hidden);
}

template <class T>
void Transformer<T>::embed(const Context& context, Flight<T>& flight,
                           const ModelTensors<T>& weights) {
  const PhaseScope phase(times_, Phase::kEmbedding);
  const RowSum<T> sum(context, 0, flight.input_TD);
  kernels::embedding_forward<T>(context.exec, placement_.vocab.first, flight.batch.tokens_U,
                                weights.embedding_VD, sum.target_UD());
  sum.finish();
}

template <class T>
void Transformer<T>::run_blocks(const ExecSpace& exec, Flight<T>& flight,
                                const ModelTensors<T>& weights, const StepSums* sums,
                                const UnitHooks& hooks) {
  DeviceView<T, 2> x_TD = flight.input_TD;
  for (std::int64_t i = 0; i < layers(flight).count; ++i) {
    const std::int64_t layer = layers(flight).first + i;
    const auto index = static_cast<std::size_t>(i);
    flight.block_input_TD[index] = x_TD;
    const auto y_TD = flight.kept.template take<T>(x_TD.extent(0), x_TD.extent(1));
    const ArenaScope dropped(workspace_->recomputed);
    // All of it where the backward pass will have it again: no arena grows for one pass alone.
    const Context inner =
        recompute_ == Recompute::kFull
            ? context(exec, flight, workspace_->recomputed, Recompute::kNone)
            : context(exec, flight, flight.kept, recompute_);
    const LayerSums layer_sums = sums != nullptr ? sums->layer(layer) : LayerSums{};
    call(hooks.before, layer_unit(layer));
    block_forward<T>(inner, setup(), layer, flight.batch,
                     weights.blocks[static_cast<std::size_t>(layer)], x_TD,
                     flight.activations[index], sums != nullptr ? &layer_sums : nullptr, y_TD);
    x_TD = y_TD;
  }
  flight.output_TD = x_TD;
}

template <class T>
DeviceView<T, 2> Transformer<T>::final_norm(const Context& context, Flight<T>& flight,
                                            const ModelTensors<T>& weights) {
  const PhaseScope phase(times_, Phase::kHead);
  const auto& x_TD = flight.output_TD;
  flight.final_normed_TD = context.saved.take<T>(x_TD.extent(0), x_TD.extent(1));
  flight.final_inverse_rms_T = context.saved.take<Accumulator<T>>(x_TD.extent(0));
  kernels::rms_norm_forward<T>(context.exec, x_TD, weights.final_norm_D,
                               placement_.whole.norm_eps, flight.final_normed_TD,
                               flight.final_inverse_rms_T);
  return flight.final_normed_TD;
}

template <class T>
void Transformer<T>::form_loss(const Context& context, Flight<T>& flight,
                               const StepTensors<T>& step) {
  head_forward<T>(context, flight.batch, {placement_.vocab.first, largest_vocab_},
                  step.weights.head_VD, final_norm(context, flight, step.weights),
                  step.sums.cross_entropy);
}

template <class T>
void Transformer<T>::form_loss_and_gradient(const Context& context, Flight<T>& flight,
                                            const StepTensors<T>& step) {
  const auto& x_TD = flight.output_TD;
  flight.doutput_TD = context.kept.take<T>(x_TD.extent(0), x_TD.extent(1));
  const auto normed_TD = final_norm(context, flight, step.weights);
  const ArenaScope scope(context.scratch);
  const auto dnormed_TD = context.scratch.take<T>(x_TD.extent(0), x_TD.extent(1));
  head_forward_backward<T>(context, flight.batch, {placement_.vocab.first, largest_vocab_},
                           flight.scales.cross_entropy, step.weights.head_VD, normed_TD,
                           dnormed_TD, step.gradients.head_VD, step.sums.cross_entropy);
  const PhaseScope phase(times_, Phase::kHead);
  fill_tensor(context.exec, flight.doutput_TD, T(0));
  kernels::rms_norm_backward<T>(context.exec, x_TD, step.weights.final_norm_D,
                                flight.final_inverse_rms_T, dnormed_TD, context.scratch,
                                flight.doutput_TD, step.gradients.final_norm_D);
}

template <class T>
void Transformer<T>::forward(const ExecSpace& exec, Flight<T>& flight,
                             const StepTensors<T>& step, bool with_gradient) {
  const Context kept = context(exec, flight, flight.kept, recompute_);
  if (is_first(flight)) {
    call(step.hooks.before, embedding_unit());
    embed(kept, flight, step.weights);
  }
  run_blocks(exec, flight, step.weights, &step.sums, step.hooks);
  if (!is_last(flight)) return;
  // Of a tied pair the head is the embedding.
  const std::int64_t head = head_unit(placement_.whole);
  if (placement_.whole.tied) call(step.hooks.before, embedding_unit());
  call(step.hooks.before, head);
  if (with_gradient) {
    Context first = kept;
    // A tied matrix is cleared: its gradient has two sources.
    first.first_backward = !placement_.whole.tied && is_first_backward(step.hooks, head);
    form_loss_and_gradient(first, flight, step);
    call(step.hooks.after_backward, head);
  } else {
    form_loss(kept, flight, step);
  }
}

template <class T>
void Transformer<T>::backward_layer(const ExecSpace& exec, Flight<T>& flight,
                                    std::int64_t layer, const StepTensors<T>& step,
                                    const DeviceView<T, 2>& dx_TD) {
  const auto index = static_cast<std::size_t>(layer - layers(flight).first);
  const auto l = static_cast<std::size_t>(layer);
  BlockActivations<T>& activations = flight.activations[index];
  const ArenaScope scope(workspace_->recomputed);
  Context known = context(exec, flight, flight.kept, recompute_);
  if (recompute_ == Recompute::kFull) {
    const Context again = context(exec, flight, workspace_->recomputed, Recompute::kNone);
    const auto y_TD =
        workspace_->recomputed.template take<T>(dx_TD.extent(0), dx_TD.extent(1));
    block_forward<T>(again, setup(), layer, flight.batch, step.weights.blocks[l],
                     flight.block_input_TD[index], activations, nullptr, y_TD);
    known.recompute = Recompute::kNone;
  }
  known.first_backward = is_first_backward(step.hooks, layer_unit(layer));
  block_backward<T>(known, setup(), layer, flight.batch, step.weights.blocks[l], activations,
                    flight.scales.router, step.gradients.blocks[l], dx_TD);
}

template <class T>
void Transformer<T>::embed_backward(const Context& context, const Flight<T>& flight,
                                    const ModelTensors<Gradient<T>>& gradients,
                                    const DeviceView<T, 2>& dx_TD) {
  const PhaseScope phase(times_, Phase::kEmbedding);
  const ArenaScope scope(context.scratch);
  kernels::embedding_backward<T>(context.exec, placement_.vocab.first, flight.batch.tokens_U,
                                 gather_rows<T>(context, dx_TD, context.scratch),
                                 gradients.embedding_VD);
}

template <class T>
void Transformer<T>::backward(const ExecSpace& exec, Flight<T>& flight,
                              const StepTensors<T>& step, const DeviceView<T, 2>& dx_TD) {
  for (std::int64_t layer = layers(flight).end() - 1; layer >= layers(flight).first; --layer) {
    call(step.hooks.before, layer_unit(layer));
    backward_layer(exec, flight, layer, step, dx_TD);
    call(step.hooks.after_backward, layer_unit(layer));
  }
  if (!is_first(flight)) return;
  call(step.hooks.before, embedding_unit());
  embed_backward(context(exec, flight, flight.kept, recompute_), flight, step.gradients, dx_TD);
  call(step.hooks.after_backward, embedding_unit());
}

template <class T>
void Transformer<T>::forward_backward(const ExecSpace& exec, const MicroBatch& batch,
                                      const LossScales& scales, const ModelTensors<T>& weights,
                                      const ModelTensors<Gradient<T>>& gradients, const StepSums& sums) {
  const StepTensors<T> step{weights, gradients, sums, {}};
  begin(own_, 0, batch, scales);
  forward(exec, own_, step, true);
  backward(exec, own_, step, own_.doutput_TD);
}

template <class T>
void Transformer<T>::evaluate(const ExecSpace& exec, const MicroBatch& batch,
                              const ModelTensors<T>& weights, const StepSums& sums) {
  const ModelTensors<Gradient<T>> no_gradients;
  begin(own_, 0, batch, {});
  forward(exec, own_, {weights, no_gradients, sums, {}}, false);
}

template <class T>
void Transformer<T>::logits(const ExecSpace& exec, const MicroBatch& batch,
                            const ModelTensors<T>& weights,
                            const DeviceView<Accumulator<T>, 2>& logits_TV) {
  PLEAT_ASSERT(grid_.shape().ranks() == 1, "logits of the whole vocabulary need one rank");
  begin(own_, 0, batch, {});
  const Context kept = context(exec, own_, own_.kept, recompute_);
  embed(kept, own_, weights);
  run_blocks(exec, own_, weights, nullptr, {});
  kernels::gemm<T, Accumulator<T>>(exec, Transpose::kNo, Transpose::kYes, 1,
                                   final_norm(kept, own_, weights), weights.head_VD, 0,
                                   logits_TV);
}

template <class T>
std::int64_t Transformer<T>::first_non_finite(const ExecSpace& exec,
                                              const Flight<T>& flight) const {
  const Slice chunk = layers(flight);
  if (is_first(flight) && !finite<T>(exec, flight.input_TD)) return 0;
  for (std::int64_t i = 0; i < chunk.count; ++i) {
    const auto& y_TD = i + 1 < chunk.count
                           ? flight.block_input_TD[static_cast<std::size_t>(i + 1)]
                           : flight.output_TD;
    if (!finite<T>(exec, y_TD)) return chunk.first + i + 1;
  }
  if (is_last(flight) && !finite<T>(exec, flight.final_normed_TD)) {
    return placement_.whole.layers + 1;
  }
  return -1;
}

template class Transformer<float>;
template class Transformer<double>;
template class Transformer<Bf16>;

}  // namespace pleat::model
