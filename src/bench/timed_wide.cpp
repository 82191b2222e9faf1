// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "pleat/base/copy.hpp"
#include "pleat/base/random.hpp"
#include "pleat/kernels/adamw.hpp"
#include "pleat/kernels/cross_entropy.hpp"
#include "pleat/kernels/router.hpp"
#include "timed_kernel.hpp"

namespace pleat::bench {
namespace {

template <class T>
TimedKernel time_router(const Workbench<T>& x, bool backward) {
  const std::int64_t tokens = x.shape.tokens(), experts = x.shape.experts;
  const kernels::RouterOptions options{.top_k = x.shape.top_k};
  const auto logits_TE = x.rows(tokens, experts), scores_TE = x.rows(tokens, experts);
  const auto weight_TK = x.rows(tokens, options.top_k);
  const DeviceView<std::int32_t, 2> index_TK("pleat::bench::index", tokens,
                                             options.top_k);
  const auto real_T = x.template numbers<std::uint8_t>(tokens);
  const auto exec = x.exec;
  const std::function<void()> forward = [=] {
    kernels::router_forward<T>(exec, options, logits_TE, DeviceView<T, 1>(), real_T,
                               scores_TE, index_TK, weight_TK);
  };
  const double bytes =
      x.bytes_of(2.0 * static_cast<double>(tokens * (experts + options.top_k)));
  const std::string text = fmt::format("{} x {}, top {}", tokens, experts, options.top_k);
  if (!backward) return memory_kernel("router forward", text, bytes, forward);
  forward();
  const auto dlogits_TE = x.rows(tokens, experts),
             dweight_TK = x.rows(tokens, options.top_k);
  return memory_kernel("router backward", text, bytes, [=] {
    kernels::router_backward<T>(exec, options, scores_TE, index_TK, weight_TK, dweight_TK,
                                dlogits_TE);
  });
}

/// A chunk of tokens, loss and gradient at once. The logits of one run are the gradient
/// of the one before: numbers like others.
template <class T>
TimedKernel time_cross_entropy(const Workbench<T>& x) {
  const std::int64_t vocabulary = x.shape.vocabulary;
  const std::int64_t tokens = std::min<std::int64_t>(x.shape.tokens(), 512);
  const auto labels_C = drawn_integers(tokens, static_cast<std::uint64_t>(vocabulary));
  const auto mask_C = x.template numbers<std::uint8_t>(tokens);
  const auto logits_CV = x.rows(tokens, vocabulary);
  const DeviceView<double, 0> loss("pleat::bench::loss");
  const auto exec = x.exec;
  const auto scratch = x.scratch;
  return memory_kernel("cross-entropy", fmt::format("{} x {}", tokens, vocabulary),
                       x.bytes_of(2.0 * static_cast<double>(tokens * vocabulary)), [=] {
                         kernels::cross_entropy_forward_backward<T>(
                             exec, 1.0, labels_C, mask_C, *scratch, logits_CV, loss);
                       });
}

/// The weights of one expert's first projection for all experts.
template <class T>
TimedKernel time_adamw(const Workbench<T>& x) {
  const std::int64_t count = x.shape.experts * 2 * x.shape.ffn * x.shape.hidden;
  const DeviceView<double, 0> scale("pleat::bench::scale");
  fill_tensor(scale, 1.0);
  const auto gradient_N = x.numbers(count), m_N = x.numbers(count),
             v_N = x.numbers(count);
  const auto w_N = x.numbers(count);
  const auto exec = x.exec;
  return memory_kernel("adamw", fmt::format("{}", count),
                       x.bytes_of(7.0 * static_cast<double>(count)), [=] {
                         kernels::adamw_update<T>(exec, {.learning_rate = 1.0e-4}, scale,
                                                  gradient_N, m_N, v_N, w_N);
                       });
}

}  // namespace

DeviceView<std::int32_t, 1> drawn_integers(std::int64_t count, std::uint64_t below) {
  const DeviceView<std::int32_t, 1> view("pleat::bench::drawn",
                                         static_cast<std::size_t>(count));
  const auto mirror = host_mirror(view);
  const CounterRandom random(1, hash_name("bench"));
  for (std::size_t i = 0; i < mirror.size(); ++i) {
    mirror(i) = static_cast<std::int32_t>(random.bits64(i) % below);
  }
  copy_tensor(view, mirror);
  return view;
}

template <class T>
std::vector<Maker<T>> wide_makers() {
  using X = const Workbench<T>&;
  return {
      [](X x) { return time_router<T>(x, false); },
      [](X x) { return time_router<T>(x, true); },
      [](X x) { return time_cross_entropy<T>(x); },
      [](X x) { return time_adamw<T>(x); },
  };
}

template std::vector<Maker<double>> wide_makers<double>();
template std::vector<Maker<float>> wide_makers<float>();

}  // namespace pleat::bench
