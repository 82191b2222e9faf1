// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <fmt/format.h>

#include "pleat/base/copy.hpp"
#include "pleat/kernels/attention.hpp"
#include "pleat/kernels/gemm.hpp"
#include "timed_kernel.hpp"

namespace pleat::bench {
namespace {

using kernels::Transpose;

/// The projection to queries, keys and values: its product and the two of its gradient.
template <class T>
TimedKernel time_gemm(const Workbench<T>& x, const char* pass) {
  const std::int64_t tokens = x.shape.tokens(), hidden = x.shape.hidden;
  const std::int64_t out = x.shape.qkv_row();
  const auto x_TD = x.rows(tokens, hidden), w_QD = x.rows(out, hidden);
  const auto y_TQ = x.rows(tokens, out);
  const auto dw_QD = x.template rows<Gradient<T>>(out, hidden);
  const auto exec = x.exec;
  std::function<void()> run;
  const std::string which = pass;
  if (which == "forward") {
    run = [=] {
      kernels::gemm<T>(exec, Transpose::kNo, Transpose::kYes, 1, x_TD, w_QD, 0, y_TQ);
    };
  } else if (which == "input gradient") {
    run = [=] {
      kernels::gemm<T>(exec, Transpose::kNo, Transpose::kNo, 1, y_TQ, w_QD, 0, x_TD);
    };
  } else {
    run = [=] {
      kernels::gemm<T, Gradient<T>>(exec, Transpose::kYes, Transpose::kNo, 1, y_TQ, x_TD,
                                    1, dw_QD);
    };
  }
  return product_kernel("gemm " + which, fmt::format("{} x {} x {}", tokens, out, hidden),
                        2.0 * static_cast<double>(tokens * out * hidden), std::move(run));
}

/// The first projection of the experts, with as many rows for each of them.
template <class T>
TimedKernel time_grouped_gemm(const Workbench<T>& x, bool weights) {
  const std::int64_t experts = x.shape.experts, hidden = x.shape.hidden;
  const std::int64_t out = 2 * x.shape.ffn;
  const std::int64_t rows = x.shape.tokens() * x.shape.top_k;
  const auto host = std::make_shared<std::vector<std::int64_t>>();
  for (std::int64_t e = 0; e <= experts; ++e) host->push_back(rows * e / experts);
  const DeviceView<std::int64_t, 1> device("pleat::bench::offsets", host->size());
  copy_tensor(device, HostView<std::int64_t, 1>(host->data(), host->size()));
  const auto a_RK = x.rows(rows, hidden), c_RN = x.rows(rows, out);
  const auto exec = x.exec;
  std::function<void()> run;
  if (weights) {
    const auto dw = x.template rows<Gradient<T>>(experts * out, hidden);
    run = [=] {
      const DeviceView<Gradient<T>, 3> dw_ENK(dw.data(), experts, out, hidden);
      kernels::grouped_gemm_weights<T>(exec, 1, c_RN, a_RK, 1, dw_ENK, {*host, device});
    };
  } else {
    const auto w = x.rows(experts * out, hidden);
    run = [=] {
      const DeviceView<const T, 3> w_ENK(w.data(), experts, out, hidden);
      kernels::grouped_gemm_rows<T>(exec, Transpose::kYes, 1, a_RK, w_ENK, 0, c_RN,
                                    {*host, device});
    };
  }
  return product_kernel(
      weights ? "grouped gemm weight gradient" : "grouped gemm forward",
      fmt::format("{} x {} x {}, {} groups", rows, out, hidden, experts),
      2.0 * static_cast<double>(rows * out * hidden), std::move(run));
}

template <class T>
TimedKernel time_attention(const Workbench<T>& x, bool backward) {
  using A = Accumulator<T>;
  const Shape& s = x.shape;
  const auto shape = kernels::fused_attention_shape(s.batch, s.sequence, s.heads,
                                                    s.kv_heads, s.head_dim);
  const A scale = A(1) / static_cast<A>(std::sqrt(static_cast<double>(s.head_dim)));
  const auto qkv_TQ = x.rows(s.tokens(), s.qkv_row());
  const auto o_TO = x.rows(s.tokens(), s.heads * s.head_dim);
  const auto lse_HT = x.template rows<A>(s.heads, s.tokens());
  const auto exec = x.exec;
  const auto scratch = x.scratch;
  constexpr auto kFirst = kernels::Pieces::kFirst;
  const std::function<void()> forward = [=] {
    kernels::attention_forward<T>(exec, shape, scale, kFirst, qkv_TQ, qkv_TQ, *scratch,
                                  o_TO, lse_HT);
  };
  const std::string text =
      fmt::format("{} x {}, {} heads of {}", s.batch, s.sequence, s.heads, s.head_dim);
  // Two products over half of S x S forward; five backward, the scores anew among them.
  const double product = static_cast<double>(s.batch * s.heads * s.head_dim) *
                         static_cast<double>(s.sequence) *
                         static_cast<double>(s.sequence + 1);
  if (!backward) return product_kernel("attention forward", text, 2.0 * product, forward);
  forward();
  const auto dqkv_TQ = x.rows(s.tokens(), s.qkv_row());
  const auto do_TO = x.rows(s.tokens(), s.heads * s.head_dim);
  const auto delta_HT = x.template rows<A>(s.heads, s.tokens());
  return product_kernel("attention backward", text, 5.0 * product, [=] {
    kernels::attention_delta<T>(exec, shape.heads, shape.head_dim, o_TO, do_TO, delta_HT);
    kernels::attention_backward<T>(exec, shape, scale, kFirst, false, qkv_TQ, qkv_TQ,
                                   o_TO, lse_HT, delta_HT, do_TO, *scratch, dqkv_TQ, dqkv_TQ);
  });
}

}  // namespace

template <class T>
std::vector<Maker<T>> product_makers() {
  using X = const Workbench<T>&;
  return {
      [](X x) { return time_gemm<T>(x, "forward"); },
      [](X x) { return time_gemm<T>(x, "input gradient"); },
      [](X x) { return time_gemm<T>(x, "weight gradient"); },
      [](X x) { return time_grouped_gemm<T>(x, false); },
      [](X x) { return time_grouped_gemm<T>(x, true); },
  };
}

template <class T>
std::vector<Maker<T>> attention_makers() {
  using X = const Workbench<T>&;
  return {
      [](X x) { return time_attention<T>(x, false); },
      [](X x) { return time_attention<T>(x, true); },
  };
}

template std::vector<Maker<double>> product_makers<double>();
template std::vector<Maker<float>> product_makers<float>();
template std::vector<Maker<Bf16>> product_makers<Bf16>();
template std::vector<Maker<double>> attention_makers<double>();
template std::vector<Maker<float>> attention_makers<float>();
template std::vector<Maker<Bf16>> attention_makers<Bf16>();

}  // namespace pleat::bench
