// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The kernels whose answers are stored, at the sizes that scripts/bench_answers
/// has. Sizes are odd, so that vectors and tiles end inside of them.
#include <cmath>
#include <type_traits>

#include "answer_case.hpp"
#include "answer_products.hpp"
#include "pleat/base/copy.hpp"
#include "pleat/kernels/adamw.hpp"
#include "pleat/kernels/cross_entropy.hpp"
#include "pleat/kernels/embedding.hpp"
#include "pleat/kernels/permute.hpp"
#include "pleat/kernels/rms_norm.hpp"
#include "pleat/kernels/rope.hpp"
#include "pleat/kernels/router.hpp"
#include "pleat/kernels/swiglu.hpp"

namespace pleat::bench {
namespace {

constexpr std::int64_t kTokens = 37;
constexpr std::int64_t kHidden = 43;
constexpr std::int64_t kHeadDim = 16;
constexpr std::int64_t kExperts = 11;
constexpr std::int64_t kTopK = 3;
constexpr std::int64_t kVocabulary = 53;

template <class T>
void answer_rms_norm(AnswerCase<T>& x) {
  constexpr const char* kName = "rms norm";
  constexpr double kEps = 1.0 / 1024.0;
  const auto x_TD = x.rows("norm x", kTokens, kHidden);
  const auto w_D = x.numbers("norm w", kHidden);
  const auto y_TD = x.zeros(kTokens, kHidden);
  const auto inverse_T = x.template zeros<Accumulator<T>>(kTokens);
  kernels::rms_norm_forward<T>(x.exec, x_TD, w_D, kEps, y_TD, inverse_T);
  x.add(kName, "y", y_TD);
  const auto dx_TD = x.zeros(kTokens, kHidden);
  const auto dw_D = x.template zeros<Gradient<T>>(kHidden);
  kernels::rms_norm_backward<T>(x.exec, x_TD, w_D, inverse_T,
                                x.rows("norm dy", kTokens, kHidden), x.scratch, dx_TD,
                                dw_D);
  x.add(kName, "dx", dx_TD);
  x.add(kName, "dw", dw_D);
}

template <class T>
void answer_rope(AnswerCase<T>& x) {
  constexpr std::int64_t kHeads = 5, kRotated = 3;
  const auto tables = kernels::make_rope_tables<T>(kTokens, kHeadDim, 10000.0);
  for (const auto rotation :
       {kernels::Rotation::kForward, kernels::Rotation::kBackward}) {
    const auto qkv_TQ = x.rows("rope x", kTokens, kHeads * kHeadDim);
    kernels::rope_in_place<T>(x.exec, rotation, tables, kTokens, kRotated, kHeadDim,
                              qkv_TQ);
    x.add("rope", rotation == kernels::Rotation::kForward ? "forward" : "backward",
          qkv_TQ);
  }
}

template <class T>
void answer_swiglu(AnswerCase<T>& x) {
  using A = Accumulator<T>;
  constexpr const char* kName = "swiglu";
  const auto gate_up_R2F = x.rows("swiglu gate_up", kTokens, 2 * kHidden, 4.0);
  const auto weight_R = x.template numbers<A>("swiglu weight", kTokens);
  const auto h_RF = x.zeros(kTokens, kHidden);
  kernels::swiglu_forward<T>(x.exec, gate_up_R2F, weight_R, h_RF);
  x.add(kName, "h", h_RF);
  const auto dgate_up_R2F = x.zeros(kTokens, 2 * kHidden);
  const auto dweight_R = x.template zeros<A>(kTokens);
  kernels::swiglu_backward<T>(x.exec, gate_up_R2F, weight_R,
                              x.rows("swiglu dh", kTokens, kHidden), dgate_up_R2F, h_RF,
                              dweight_R);
  x.add(kName, "dgate_up", dgate_up_R2F);
  x.add(kName, "dweight", dweight_R);
}

template <class T>
void answer_permutation(AnswerCase<T>& x) {
  constexpr const char* kName = "permutation";
  // Padding is -1.
  const auto drawn = x.integers("permute index", kTokens * kTopK, kExperts + 1, -1);
  const auto index_TK = x.template shaped<std::int32_t>(drawn, kTokens, kTopK);
  const kernels::Permutation permutation{x.template zeros<std::int64_t>(kExperts + 1),
                                         x.template zeros<std::int64_t>(kTokens, kTopK)};
  kernels::make_permutation(x.exec, index_TK, kExperts, x.scratch, permutation);
  x.add(kName, "rows", permutation.row_TK);
  const auto offsets =
      host_copy(permutation.offsets_E1);
  const auto x_RD = x.zeros(offsets(kExperts), kHidden);
  kernels::permute_rows<T>(x.exec, permutation, x.rows("permute x", kTokens, kHidden),
                           x_RD);
  x.add(kName, "x", x_RD);
  const auto y_TD = x.zeros(kTokens, kHidden);
  kernels::unpermute_sum<T>(x.exec, permutation,
                            x.rows("permute y", kTokens * kTopK, kHidden), y_TD);
  x.add(kName, "y", y_TD);
}

template <class T>
void answer_embedding(AnswerCase<T>& x) {
  constexpr const char* kName = "embedding";
  constexpr std::int64_t kFirst = 5;  // tokens below and above the slice occur
  const auto tokens_T = x.integers("embedding tokens", kTokens, kVocabulary + 2 * kFirst);
  const auto x_TD = x.zeros(kTokens, kHidden);
  kernels::embedding_forward<T>(x.exec, kFirst, tokens_T,
                                x.rows("embedding w", kVocabulary, kHidden), x_TD);
  x.add(kName, "x", x_TD);
  const auto dw_VD = x.template zeros<Gradient<T>>(kVocabulary, kHidden);
  kernels::embedding_backward<T>(x.exec, kFirst, tokens_T,
                                 x.rows("embedding dx", kTokens, kHidden), dw_VD);
  x.add(kName, "dw", dw_VD);
}

/// Both kinds of scores: softmax over all experts, sigmoid divided by the sum of the
/// chosen.
template <class T>
void answer_router(AnswerCase<T>& x, const kernels::RouterOptions& options,
                   const char* weights_name, const char* dlogits_name) {
  constexpr const char* kName = "router";
  const bool softmax = options.score == kernels::Score::kSoftmaxBeforeTopK;
  const auto logits_TE = x.rows("router logits", kTokens, kExperts, 4.0);
  const auto real_T = AnswerCase<T>::template filled<std::uint8_t>(
      kTokens, [](std::int64_t) { return 1; });
  const auto scores_TE = x.zeros(kTokens, kExperts);
  const auto index_TK = x.template zeros<std::int32_t>(kTokens, kTopK);
  const auto weight_TK = x.zeros(kTokens, kTopK);
  kernels::router_forward<T>(x.exec, options, logits_TE, DeviceView<T, 1>(), real_T,
                             scores_TE, index_TK, weight_TK);
  if (softmax) {
    x.add(kName, "index", index_TK);
    x.add(kName, "softmax scores", scores_TE);
  }
  x.add(kName, weights_name, weight_TK);
  const auto dlogits_TE = x.zeros(kTokens, kExperts);
  kernels::router_backward<T>(x.exec, options, scores_TE, index_TK, weight_TK,
                              x.rows("router dweight", kTokens, kTopK), dlogits_TE);
  x.add(kName, dlogits_name, dlogits_TE);
}

template <class T>
void answer_routers(AnswerCase<T>& x) {
  answer_router<T>(
      x,
      {.top_k = kTopK, .score = kernels::Score::kSoftmaxBeforeTopK, .normalize = false},
      "softmax weights", "softmax dlogits");
  answer_router<T>(x,
                   {.top_k = kTopK,
                    .score = kernels::Score::kSigmoid,
                    .normalize = true,
                    .scale = 2.5},
                   "sigmoid weights", "sigmoid dlogits");
}

template <class T>
void answer_cross_entropy(AnswerCase<T>& x) {
  constexpr const char* kName = "cross-entropy";
  const auto labels_C = x.integers("cross_entropy labels", kTokens, kVocabulary);
  const auto mask_C = AnswerCase<T>::template filled<std::uint8_t>(
      kTokens, [random = answer_random("cross_entropy mask")](std::int64_t c) {
        return random.bits64(static_cast<std::uint64_t>(c)) % 4 == 0 ? 0 : 1;
      });
  const auto logits_CV = x.rows("cross_entropy logits", kTokens, kVocabulary, 8.0);
  const DeviceView<double, 0> loss("pleat::bench::loss");
  kernels::cross_entropy_forward_backward<T>(x.exec, 1.0 / 32.0, labels_C, mask_C,
                                             x.scratch, logits_CV, loss);
  // Formed in fp64 of terms in T.
  x.add(kName, "loss", loss, precision_name<T>());
  x.add(kName, "dlogits", logits_CV);
}

template <class T>
void answer_adamw(AnswerCase<T>& x) {
  constexpr const char* kName = "adamw";
  constexpr std::int64_t kCount = kTokens * kHidden;
  const kernels::AdamWOptions options{.learning_rate = 1.0 / 128.0,
                                      .beta1 = 0.875,
                                      .beta2 = 0.96875,
                                      .eps = 1.0 / (1 << 20),
                                      .weight_decay = 0.125,
                                      .step = 3};
  const DeviceView<double, 0> scale("pleat::bench::scale");
  fill_tensor(scale, 0.5);
  const auto m_N = x.numbers("adamw m", kCount);
  const auto v_N = AnswerCase<T>::template filled<T>(
      kCount, [random = answer_random("adamw v")](std::int64_t i) {
        return std::abs(
            answer_input(random, static_cast<std::uint64_t>(i), Inputs::kWide));
      });
  const auto w_N = x.numbers("adamw w", kCount);
  kernels::adamw_update<T>(x.exec, options, scale, x.numbers("adamw gradient", kCount),
                           m_N, v_N, w_N);
  x.add(kName, "m", m_N);
  x.add(kName, "v", v_N);
  x.add(kName, "w", w_N);
}

template <class T>
void answer_all(std::vector<Answer>& answers) {
  AnswerCase<T> x(answers);
  answer_products(x);
  answer_rms_norm(x);
  answer_rope(x);
  answer_swiglu(x);
  answer_permutation(x);
  answer_embedding(x);
  // The rest computes in fp32 where the model is in bf16.
  if constexpr (std::is_same_v<T, Accumulator<T>>) {
    answer_routers(x);
    answer_cross_entropy(x);
    answer_adamw(x);
  }
}

}  // namespace

std::vector<Answer> compute_answers() {
  std::vector<Answer> answers;
  answer_all<double>(answers);
  answer_all<float>(answers);
  answer_all<Bf16>(answers);
  return answers;
}

}  // namespace pleat::bench
