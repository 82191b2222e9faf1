// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Stored answers of what goes to a library of products, at the sizes that
/// scripts/bench_answers has. They are odd, so that vectors and tiles end inside of them, but for
/// answer_aligned().
#include "answer_products.hpp"

#include <cmath>
#include <type_traits>

#include <fmt/format.h>

#include "pleat/kernels/attention.hpp"
#include "pleat/kernels/gemm.hpp"

namespace pleat::bench {
namespace {

using kernels::Transpose;

template <class T>
void answer_gemm(AnswerCase<T>& x) {
  constexpr std::int64_t kM = 37, kN = 43, kK = 67;
  constexpr const char* kName = "gemm";
  const auto a = x.rows("gemm a", kM, kK);
  const auto b = x.rows("gemm b", kK, kN);
  const auto c_MN = x.zeros(kM, kN);
  kernels::gemm<T>(x.exec, Transpose::kNo, Transpose::kNo, 1, a, b, 0, c_MN);
  x.add(kName, "a b", c_MN);
  kernels::gemm<T>(x.exec, Transpose::kNo, Transpose::kYes, 1, a,
                   x.rows("gemm bt", kN, kK), 0, c_MN);
  x.add(kName, "a b^T", c_MN);
  // As the gradient of a weight is added to.
  const auto sum_MN = x.template rows<Gradient<T>>("gemm c", kM, kN);
  kernels::gemm<T, Gradient<T>>(x.exec, Transpose::kYes, Transpose::kNo, 1,
                                x.rows("gemm at", kK, kM), b, 1, sum_MN);
  x.add(kName, "a^T b + c", sum_MN);
}

/// Columns of the rows, and of what a group's matrix makes of them.
struct GroupSizes {
  const char* kernel;
  const char* inputs;
  std::int64_t hidden, out;
};

template <class T>
void answer_grouped_gemm(AnswerCase<T>& x, const GroupSizes& sizes) {
  constexpr std::int64_t kGroups = 4, kRows = 37;
  constexpr std::int64_t kFirst[kGroups + 1] = {0, 9, 9, 25, kRows};  // one has no rows
  const char* const name = sizes.kernel;
  const std::int64_t hidden = sizes.hidden, out = sizes.out;
  const auto named = [&](const char* matrix) {
    return fmt::format("{} {}", sizes.inputs, matrix);
  };
  const auto device = AnswerCase<T>::template filled<std::int64_t>(
      kGroups + 1, [&](std::int64_t e) { return kFirst[e]; });
  const kernels::GroupOffsets offsets{kFirst, device};
  const auto a_RK = x.rows(named("a"), kRows, hidden);
  const auto b_RN = x.rows(named("b"), kRows, out);
  const auto w = x.rows(named("w"), kGroups * out, hidden);
  const DeviceView<const T, 3> w_ENK(w.data(), kGroups, out, hidden);
  const auto forward_RN = x.zeros(kRows, out);
  kernels::grouped_gemm_rows<T>(x.exec, Transpose::kYes, 1, a_RK, w_ENK, 0, forward_RN,
                                offsets);
  x.add(name, "forward", forward_RN);
  const auto backward_RK = x.zeros(kRows, hidden);
  kernels::grouped_gemm_rows<T>(x.exec, Transpose::kNo, 1, b_RN, w_ENK, 0, backward_RK,
                                offsets);
  x.add(name, "input gradient", backward_RK);
  const auto dw = x.template zeros<Gradient<T>>(kGroups * out, hidden);
  const DeviceView<Gradient<T>, 3> dw_ENK(dw.data(), kGroups, out, hidden);
  kernels::grouped_gemm_weights<T>(x.exec, 1, b_RN, a_RK, 0, dw_ENK, offsets);
  x.add(name, "weight gradient", dw);
}

struct AttentionSizes {
  const char* kernel;
  std::int64_t batch, sequence, heads, kv_heads, head_dim;
};

template <class T>
void answer_attention(AnswerCase<T>& x, const AttentionSizes& sizes) {
  using A = Accumulator<T>;
  const auto [name, batch, sequence, heads, kv_heads, head_dim] = sizes;
  const auto shape =
      kernels::fused_attention_shape(batch, sequence, heads, kv_heads, head_dim);
  const std::int64_t tokens = batch * sequence, out = heads * head_dim;
  const std::int64_t row = out + 2 * kv_heads * head_dim;
  const A scale = A(1) / static_cast<A>(std::sqrt(static_cast<double>(head_dim)));
  const auto qkv_TQ = x.rows(fmt::format("{} qkv", name), tokens, row, 2.0);
  const auto do_TO = x.rows(fmt::format("{} do", name), tokens, out);
  const auto o_TO = x.zeros(tokens, out);
  const auto lse_HT = x.template zeros<A>(heads, tokens);
  const auto delta_HT = x.template zeros<A>(heads, tokens);
  const auto dqkv_TQ = x.zeros(tokens, row);
  kernels::attention_forward<T>(x.exec, shape, scale, kernels::Pieces::kFirst, qkv_TQ,
                                qkv_TQ, x.scratch, o_TO, lse_HT);
  x.add(name, "o", o_TO);
  x.add(name, "lse", lse_HT);
  kernels::attention_delta<T>(x.exec, heads, head_dim, o_TO, do_TO, delta_HT);
  kernels::attention_backward<T>(x.exec, shape, scale, kernels::Pieces::kFirst, false,
                                 qkv_TQ, qkv_TQ, o_TO, lse_HT, delta_HT, do_TO, x.scratch,
                                 dqkv_TQ, dqkv_TQ);
  x.add(name, "dqkv", dqkv_TQ);
}

/// What libraries of GPUs do in bf16 alone, and only where extents are multiples of 8 (all groups
/// in one call) and sequences of 128 (fused attention).
template <class T>
void answer_aligned(AnswerCase<T>& x) {
  answer_grouped_gemm(x, {"aligned groups", "aligned groups", 48, 32});
  answer_attention(x, {"attention tiles", 1, 256, 2, 1, 64});
}

}  // namespace

template <class T>
void answer_products(AnswerCase<T>& x) {
  answer_gemm(x);
  answer_grouped_gemm(x, {"grouped gemm", "grouped", 43, 29});
  answer_attention(x, {"attention", 2, 37, 4, 2, 16});
  if constexpr (std::is_same_v<T, Bf16>) answer_aligned(x);
}

template void answer_products(AnswerCase<double>&);
template void answer_products(AnswerCase<float>&);
template void answer_products(AnswerCase<Bf16>&);

}  // namespace pleat::bench
