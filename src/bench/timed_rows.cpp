// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "pleat/kernels/permute.hpp"
#include "pleat/kernels/rms_norm.hpp"
#include "pleat/kernels/rope.hpp"
#include "pleat/kernels/swiglu.hpp"
#include "timed_kernel.hpp"

namespace pleat::bench {
namespace {

template <class T>
TimedKernel time_rms_norm(const Workbench<T>& x, bool backward) {
  const std::int64_t tokens = x.shape.tokens(), hidden = x.shape.hidden;
  const auto x_TD = x.rows(tokens, hidden), y_TD = x.rows(tokens, hidden);
  const auto w_D = x.numbers(hidden);
  const auto inverse_T = x.template numbers<Accumulator<T>>(tokens);
  const auto dw_D = x.template numbers<Gradient<T>>(hidden);
  const auto dx_TD = x.rows(tokens, hidden);
  const auto exec = x.exec;
  const auto scratch = x.scratch;
  constexpr double kEps = 1.0e-5;
  const auto array = static_cast<double>(tokens * hidden);
  const std::string text = fmt::format("{} x {}", tokens, hidden);
  if (!backward) {
    return memory_kernel("rms norm forward", text, x.bytes_of(2.0 * array), [=] {
      kernels::rms_norm_forward<T>(exec, x_TD, w_D, kEps, y_TD, inverse_T);
    });
  }
  return memory_kernel("rms norm backward", text, x.bytes_of(4.0 * array), [=] {
    kernels::rms_norm_backward<T>(exec, x_TD, w_D, inverse_T, y_TD, *scratch, dx_TD,
                                  dw_D);
  });
}

template <class T>
TimedKernel time_rope(const Workbench<T>& x) {
  const Shape& s = x.shape;
  const std::int64_t heads = s.heads + s.kv_heads, sequence = s.sequence;
  const std::int64_t head_dim = s.head_dim;
  const auto tables = kernels::make_rope_tables<T>(sequence, head_dim, 10000.0);
  const auto qkv_TQ = x.rows(s.tokens(), s.qkv_row());
  const auto exec = x.exec;
  return memory_kernel(
      "rope", fmt::format("{} x {} x {}", s.tokens(), heads, head_dim),
      x.bytes_of(2.0 * static_cast<double>(s.tokens() * heads * head_dim)), [=] {
        kernels::rope_in_place<T>(exec, kernels::Rotation::kForward, tables, sequence,
                                  heads, head_dim, qkv_TQ);
      });
}

template <class T>
TimedKernel time_swiglu(const Workbench<T>& x, bool backward) {
  using A = Accumulator<T>;
  const std::int64_t rows = x.shape.tokens() * x.shape.top_k, ffn = x.shape.ffn;
  const auto gate_up_R2F = x.rows(rows, 2 * ffn), h_RF = x.rows(rows, ffn);
  const auto weight_R = x.template numbers<A>(rows),
             dweight_R = x.template numbers<A>(rows);
  const auto exec = x.exec;
  const auto array = static_cast<double>(rows * ffn);
  const std::string text = fmt::format("{} x {}", rows, ffn);
  if (!backward) {
    return memory_kernel("swiglu forward", text, x.bytes_of(3.0 * array), [=] {
      kernels::swiglu_forward<T>(exec, gate_up_R2F, weight_R, h_RF);
    });
  }
  const auto dh_RF = x.rows(rows, ffn), dgate_up_R2F = x.rows(rows, 2 * ffn);
  return memory_kernel("swiglu backward", text, x.bytes_of(6.0 * array), [=] {
    kernels::swiglu_backward<T>(exec, gate_up_R2F, weight_R, dh_RF, dgate_up_R2F, h_RF,
                                dweight_R);
  });
}

/// Rows to their experts and back, each token to top_k of them.
template <class T>
TimedKernel time_permutation(const Workbench<T>& x, bool back) {
  const std::int64_t tokens = x.shape.tokens(), top_k = x.shape.top_k;
  const std::int64_t hidden = x.shape.hidden, experts = x.shape.experts;
  const auto drawn = drawn_integers(tokens * top_k, static_cast<std::uint64_t>(experts));
  const DeviceView<std::int32_t, 2> index_TK(drawn.data(), tokens, top_k);
  const kernels::Permutation permutation{
      DeviceView<std::int64_t, 1>("pleat::bench::offsets", experts + 1),
      DeviceView<std::int64_t, 2>("pleat::bench::rows", tokens, top_k)};
  kernels::make_permutation(x.exec, index_TK, experts, *x.scratch, permutation);
  x.exec.fence("pleat::bench: the permutation");
  const auto x_TD = x.rows(tokens, hidden), x_RD = x.rows(tokens * top_k, hidden);
  const auto exec = x.exec;
  const double bytes = x.bytes_of(static_cast<double>(tokens * (1 + top_k) * hidden));
  const std::string text = fmt::format("{} x {} x {}", tokens, top_k, hidden);
  if (back) {
    return memory_kernel("unpermute", text, bytes, [=] {
      kernels::unpermute_sum<T>(exec, permutation, x_RD, x_TD);
    });
  }
  return memory_kernel("permute", text, bytes,
                       [=] { kernels::permute_rows<T>(exec, permutation, x_TD, x_RD); });
}

}  // namespace

template <class T>
std::vector<Maker<T>> row_makers() {
  using X = const Workbench<T>&;
  return {
      [](X x) { return time_rms_norm<T>(x, false); },
      [](X x) { return time_rms_norm<T>(x, true); },
      [](X x) { return time_rope<T>(x); },
      [](X x) { return time_swiglu<T>(x, false); },
      [](X x) { return time_swiglu<T>(x, true); },
      [](X x) { return time_permutation<T>(x, false); },
      [](X x) { return time_permutation<T>(x, true); },
  };
}

template std::vector<Maker<double>> row_makers<double>();
template std::vector<Maker<float>> row_makers<float>();
template std::vector<Maker<Bf16>> row_makers<Bf16>();

}  // namespace pleat::bench
