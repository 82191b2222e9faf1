// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/head.hpp"

#include <algorithm>
#include <utility>

#include "pleat/kernels/cross_entropy.hpp"
#include "pleat/kernels/gemm.hpp"
#include "pleat/model/tensor_rows.hpp"
#include "rounding.hpp"

namespace pleat::model {
namespace {

using kernels::Transpose;

// Large enough for big GEMMs, small beside the activations of a model of that vocabulary.
constexpr std::size_t kChunkBytes = std::size_t{32} << 20;
constexpr std::int64_t kSmallestChunk = 128;

/// Calls body(first token, tokens) chunk by chunk.
template <class T, class Body>
void for_each_chunk(const MicroBatch& batch, std::int64_t vocab, const Body& body) {
  const std::int64_t rows = batch.gathered_tokens();
  constexpr std::size_t kBytes = sizeof(Accumulator<T>) + (kRounds<T> ? sizeof(T) : 0);
  const std::int64_t chunk = head_chunk_tokens(vocab, rows, kBytes);
  for (std::int64_t first = 0; first < rows; first += chunk) {
    body(first, std::min(chunk, rows - first));
  }
}

/// Rows first .. first + count - 1.
template <class View>
View rows(const View& view, std::int64_t first, std::int64_t count) {
  if constexpr (View::rank() == 1) {
    return View(view.data() + first, count);
  } else {
    return View(view.data() + first * static_cast<std::int64_t>(view.extent(1)), count,
                view.extent(1));
  }
}

/// The softmax of a chunk over the slices of all tensor ranks.
template <class A>
struct SplitSoftmax {
  DeviceView<A, 1> max_C;
  DeviceView<A, 2> sums_C2;
};

template <class A>
SplitSoftmax<A> split_softmax(const Context& context, std::int64_t first_entry,
                              const DeviceView<const A, 2>& logits_CV,
                              const DeviceView<const std::int32_t, 1>& labels_C) {
  comm::Communicator& group = context.grid.group(comm::GroupName::kTensor);
  const SplitSoftmax<A> softmax{context.scratch.take<A>(labels_C.extent(0)),
                                context.scratch.take<A>(labels_C.extent(0), 2)};
  kernels::cross_entropy_max<A>(context.exec, logits_CV, softmax.max_C);
  group.all_reduce(softmax.max_C, comm::Reduction::kMax);
  kernels::cross_entropy_sums<A>(context.exec, first_entry, logits_CV, labels_C, softmax.max_C,
                                 softmax.sums_C2);
  const DeviceView<A, 1> sums(softmax.sums_C2.data(), softmax.sums_C2.size());
  group.all_reduce(sums, comm::Reduction::kSum);
  return softmax;
}

/// Labels and masks of one chunk of tokens.
struct Chunk {
  DeviceView<const std::int32_t, 1> labels_C;
  DeviceView<const std::uint8_t, 1> loss_mask_C;
};

template <class A>
void chunk_loss(const Context& context, std::int64_t first_entry, const Chunk& chunk,
                const DeviceView<const A, 2>& logits_CV, const DeviceView<double, 0>& loss) {
  if (!is_tensor_parallel(context)) {
    kernels::cross_entropy_forward<A>(context.exec, logits_CV, chunk.labels_C,
                                      chunk.loss_mask_C, context.scratch, loss);
    return;
  }
  const auto softmax = split_softmax<A>(context, first_entry, logits_CV, chunk.labels_C);
  kernels::cross_entropy_loss<A>(context.exec, softmax.max_C, softmax.sums_C2,
                                 chunk.loss_mask_C, context.scratch, loss);
}

/// logits_CV becomes its gradient.
template <class A>
void chunk_loss_and_gradient(const Context& context, std::int64_t first_entry, double scale,
                             const Chunk& chunk, const DeviceView<A, 2>& logits_CV,
                             const DeviceView<double, 0>& loss) {
  if (!is_tensor_parallel(context)) {
    kernels::cross_entropy_forward_backward<A>(context.exec, scale, chunk.labels_C,
                                               chunk.loss_mask_C, context.scratch, logits_CV,
                                               loss);
    return;
  }
  const auto softmax = split_softmax<A>(context, first_entry, logits_CV, chunk.labels_C);
  kernels::cross_entropy_loss<A>(context.exec, softmax.max_C, softmax.sums_C2,
                                 chunk.loss_mask_C, context.scratch, loss);
  kernels::cross_entropy_gradient<A>(context.exec, scale, first_entry, chunk.labels_C,
                                     chunk.loss_mask_C, softmax.max_C, softmax.sums_C2,
                                     logits_CV);
}

}  // namespace

std::int64_t head_chunk_tokens(std::int64_t vocab, std::int64_t tokens,
                               std::size_t scalar_bytes) {
  const auto fitting = static_cast<std::int64_t>(
      kChunkBytes / (static_cast<std::size_t>(vocab) * scalar_bytes));
  return std::min(tokens, std::max(kSmallestChunk, fitting));
}

template <class T>
void head_forward(const Context& context, const MicroBatch& batch, const Vocabulary& vocabulary,
                  const DeviceView<const T, 2>& head_VD, const DeviceView<const T, 2>& x_TD,
                  const DeviceView<double, 0>& loss) {
  using A = Accumulator<T>;
  const PhaseScope phase(context.times, Phase::kHead);
  const ArenaScope gathered(context.scratch);
  const auto x_UD = gather_rows<T>(context, x_TD, context.scratch);
  for_each_chunk<T>(batch, vocabulary.largest, [&](std::int64_t first, std::int64_t count) {
    const ArenaScope scope(context.scratch);
    const auto logits_CV = context.scratch.take<A>(count, head_VD.extent(0));
    kernels::gemm<T, A>(context.exec, Transpose::kNo, Transpose::kYes, 1,
                        rows(x_UD, first, count), head_VD, 0, logits_CV);
    const Chunk chunk{rows(batch.labels_U, first, count), rows(batch.loss_mask_U, first, count)};
    chunk_loss<A>(context, vocabulary.first, chunk, logits_CV, loss);
  });
}

template <class T>
void head_forward_backward(const Context& context, const MicroBatch& batch,
                           const Vocabulary& vocabulary, double scale,
                           const DeviceView<const T, 2>& head_VD,
                           const DeviceView<const T, 2>& x_TD, const DeviceView<T, 2>& dx_TD,
                           const DeviceView<Gradient<T>, 2>& dhead_VD,
                           const DeviceView<double, 0>& loss) {
  using A = Accumulator<T>;
  const PhaseScope phase(context.times, Phase::kHead);
  const ArenaScope gathered(context.scratch);
  const auto x_UD = gather_rows<T>(context, x_TD, context.scratch);
  const RowSum<T> sum(context, 0, dx_TD);
  for_each_chunk<T>(batch, vocabulary.largest, [&](std::int64_t first, std::int64_t count) {
    const ArenaScope scope(context.scratch);
    const auto logits_CV = context.scratch.take<A>(count, head_VD.extent(0));
    kernels::gemm<T, A>(context.exec, Transpose::kNo, Transpose::kYes, 1,
                        rows(x_UD, first, count), head_VD, 0, logits_CV);
    const Chunk chunk{rows(batch.labels_U, first, count), rows(batch.loss_mask_U, first, count)};
    chunk_loss_and_gradient<A>(context, vocabulary.first, scale, chunk, logits_CV, loss);
    const auto dlogits_CV = rounded<T>(context, logits_CV);
    kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kNo, 1, dlogits_CV, head_VD, 0,
                     rows(sum.target_UD(), first, count));
    kernels::gemm<T, Gradient<T>>(context.exec, Transpose::kYes, Transpose::kNo, 1, dlogits_CV,
                                  rows(x_UD, first, count),
                                  first == 0 ? context.gradient_beta() : 1, dhead_VD);
  });
  sum.finish();
}

#define PLEAT_INSTANTIATE(T)                                                                   \
  template void head_forward<T>(const Context&, const MicroBatch&, const Vocabulary&,         \
                                const DeviceView<const T, 2>&, const DeviceView<const T, 2>&, \
                                const DeviceView<double, 0>&);                                \
  template void head_forward_backward<T>(                                                         \
      const Context&, const MicroBatch&, const Vocabulary&, double,                           \
      const DeviceView<const T, 2>&,                                                          \
      const DeviceView<const T, 2>&, const DeviceView<T, 2>&,                                 \
      const DeviceView<Gradient<T>, 2>&,                                                      \
      const DeviceView<double, 0>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::model
