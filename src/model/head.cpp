// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/head.hpp"

#include <algorithm>
#include <utility>

#include "pleat/kernels/cross_entropy.hpp"
#include "pleat/kernels/gemm.hpp"

namespace pleat::model {
namespace {

using kernels::Transpose;

// Large enough for big GEMMs, small beside the activations of a model of that vocabulary.
constexpr std::size_t kChunkBytes = std::size_t{32} << 20;
constexpr std::int64_t kSmallestChunk = 128;

/// Calls body(first token, tokens) chunk by chunk.
template <class T, class Body>
void for_each_chunk(const MicroBatch& batch, std::int64_t vocab, const Body& body) {
  const std::int64_t chunk = head_chunk_tokens(vocab, batch.tokens(), sizeof(T));
  for (std::int64_t first = 0; first < batch.tokens(); first += chunk) {
    body(first, std::min(chunk, batch.tokens() - first));
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

}  // namespace

std::int64_t head_chunk_tokens(std::int64_t vocab, std::int64_t tokens,
                               std::size_t scalar_bytes) {
  const auto fitting = static_cast<std::int64_t>(
      kChunkBytes / (static_cast<std::size_t>(vocab) * scalar_bytes));
  return std::min(tokens, std::max(kSmallestChunk, fitting));
}

template <class T>
void head_forward(const Context& context, const MicroBatch& batch,
                  const DeviceView<const T, 2>& head_VD, const DeviceView<const T, 2>& x_TD,
                  const DeviceView<double, 0>& loss) {
  const PhaseScope phase(context.times, Phase::kHead);
  const auto vocab = static_cast<std::int64_t>(head_VD.extent(0));
  for_each_chunk<T>(batch, vocab, [&](std::int64_t first, std::int64_t count) {
    const ArenaScope scope(context.scratch);
    const auto logits_CV = context.scratch.take<T>(count, vocab);
    kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kYes, T(1),
                     rows(x_TD, first, count), head_VD, T(0), logits_CV);
    kernels::cross_entropy_forward<T>(context.exec, logits_CV, rows(batch.labels_T, first, count),
                                      rows(batch.loss_mask_T, first, count), context.scratch,
                                      loss);
  });
}

template <class T>
void head_forward_backward(const Context& context, const MicroBatch& batch, double scale,
                           const DeviceView<const T, 2>& head_VD,
                           const DeviceView<const T, 2>& x_TD, const DeviceView<T, 2>& dx_TD,
                           const DeviceView<T, 2>& dhead_VD, const DeviceView<double, 0>& loss) {
  const PhaseScope phase(context.times, Phase::kHead);
  const auto vocab = static_cast<std::int64_t>(head_VD.extent(0));
  for_each_chunk<T>(batch, vocab, [&](std::int64_t first, std::int64_t count) {
    const ArenaScope scope(context.scratch);
    const auto logits_CV = context.scratch.take<T>(count, vocab);
    kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kYes, T(1),
                     rows(x_TD, first, count), head_VD, T(0), logits_CV);
    kernels::cross_entropy_forward_backward<T>(
        context.exec, scale, rows(batch.labels_T, first, count),
        rows(batch.loss_mask_T, first, count), context.scratch, logits_CV, loss);
    const auto& dlogits_CV = logits_CV;
    kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kNo, T(1), dlogits_CV, head_VD,
                     T(0), rows(dx_TD, first, count));
    kernels::gemm<T>(context.exec, Transpose::kYes, Transpose::kNo, T(1), dlogits_CV,
                     rows(x_TD, first, count), T(1), dhead_VD);
  });
}

#define PLEAT_INSTANTIATE(T)                                                                   \
  template void head_forward<T>(const Context&, const MicroBatch&, const DeviceView<const T, 2>&, \
                             const DeviceView<const T, 2>&, const DeviceView<double, 0>&);     \
  template void head_forward_backward<T>(                                                         \
      const Context&, const MicroBatch&, double, const DeviceView<const T, 2>&,                \
      const DeviceView<const T, 2>&, const DeviceView<T, 2>&, const DeviceView<T, 2>&,         \
      const DeviceView<double, 0>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::model
