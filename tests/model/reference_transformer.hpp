// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The forward pass of the model written down once more, from the formulas, in
/// plain serial loops over tensors by name: no kernel, no fused tensor, no permutation.
/// With dual numbers as scalars it also yields exact derivatives.
///
/// Legend: B sequences, S positions, T = B S tokens, D hidden, d head dimension, V
/// vocabulary, E experts, K experts per token, L layers.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "model/dual.hpp"
#include "model/host_batch.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::test {

template <class S>
struct ReferenceResult {
  std::vector<S> logits_TV;
  S cross_entropy = 0.0;       ///< sum over the tokens with loss
  std::vector<S> auxiliary_L;  ///< coefficients included; 0 for dense layers
  std::vector<S> z_L;
  std::vector<double> counts_LE;

  /// \brief The loss that is differentiated.
  S total(double cross_entropy_scale, double router_scale) const {
    S sum = cross_entropy * S(cross_entropy_scale);
    for (const S& x : auxiliary_L) sum += x * S(router_scale);
    for (const S& x : z_L) sum += x * S(router_scale);
    return sum;
  }
};

template <class S>
class ReferenceTransformer {
 public:
  ReferenceTransformer(const plan::ModelConfig& config, const Tensors<S>& weights,
                       const HostBatch& batch)
      : config_(config), weights_(weights), batch_(batch) {}

  ReferenceResult<S> forward() {
    result_.counts_LE.assign(index(config_.layers * config_.moe.experts), 0.0);
    result_.auxiliary_L.assign(index(config_.layers), S(0.0));
    result_.z_L = result_.auxiliary_L;
    const Row& embedding_VD = at("model.embed_tokens.weight");
    for (const std::int32_t token : batch_.tokens_T) {
      const auto first = embedding_VD.begin() + token * config_.hidden;
      x_TD_.emplace_back(first, first + config_.hidden);
    }
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) block(layer);
    head();
    return result_;
  }

 private:
  using Row = std::vector<S>;
  using Rows = std::vector<Row>;

  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  const Row& at(const std::string& name) const { return weights_.at(name); }

  static S dot(const Row& a, const Row& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), S(0.0));
  }
  static S logistic(const S& x) {
    using std::exp;
    return S(1.0) / (S(1.0) + exp(-x));
  }
  static S log_sum_exp(const Row& x) {
    using std::exp;
    using std::log;
    double largest = value_of(x.front());
    for (const S& v : x) largest = std::max(largest, value_of(v));
    S sum = 0.0;
    for (const S& v : x) sum += exp(v - S(largest));
    return log(sum) + S(largest);
  }
  static Row softmax(const Row& x) {
    using std::exp;
    const S norm = log_sum_exp(x);
    Row p;
    for (const S& v : x) p.push_back(exp(v - norm));
    return p;
  }
  static void add(Row& y, const Row& x, const S& factor) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += factor * x[i];
  }

  /// w x, w of shape [out, in].
  static Row linear(const Row& w, const Row& x) {
    Row y(w.size() / x.size());
    for (std::size_t o = 0; o < y.size(); ++o) {
      S sum = 0.0;
      for (std::size_t i = 0; i < x.size(); ++i) sum += w[o * x.size() + i] * x[i];
      y[o] = sum;
    }
    return y;
  }

  Row norm(const Row& x, const Row& w) const {
    using std::sqrt;
    const S mean = dot(x, x) / S(static_cast<double>(x.size()));
    const S scale = S(1.0) / sqrt(mean + S(config_.norm_eps));
    Row y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = w[i] * x[i] * scale;
    return y;
  }

  Row swiglu(const std::string& gate, const std::string& up, const std::string& down,
             const Row& x) const {
    Row g = linear(at(gate), x);
    const Row u = linear(at(up), x);
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = g[i] * logistic(g[i]) * u[i];
    return linear(at(down), g);
  }
  Row feed_forward(const std::string& prefix, const Row& x) const {
    return swiglu(prefix + "gate_proj.weight", prefix + "up_proj.weight",
                  prefix + "down_proj.weight", x);
  }

  void block(std::int64_t layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const Rows y_TD = attention(prefix);
    Rows normed_TD;
    for (std::size_t t = 0; t < x_TD_.size(); ++t) {
      add(x_TD_[t], y_TD[t], S(1.0));
      normed_TD.push_back(norm(x_TD_[t], at(prefix + "post_attention_layernorm.weight")));
    }
    if (config_.moe_layer[index(layer)]) {
      moe(layer, prefix, normed_TD);
    } else {
      for (std::size_t t = 0; t < x_TD_.size(); ++t) {
        add(x_TD_[t], feed_forward(prefix + "mlp.", normed_TD[t]), S(1.0));
      }
    }
  }

  /// Norm and rotation of one head of q or k, where they apply.
  Row conditioned(const std::string& norm_name, std::size_t token, Row y) const {
    const std::int64_t d = config_.head_dim;
    if (config_.qk_norm) y = norm(y, at(norm_name));
    const auto position = static_cast<std::int64_t>(token) % batch_.sequence;
    for (std::int64_t i = 0; i < d / 2; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(d);
      const double angle =
          static_cast<double>(position) * std::pow(config_.rope_theta, exponent);
      const S a = y[index(i)];
      const S b = y[index(i + d / 2)];
      y[index(i)] = a * S(std::cos(angle)) - b * S(std::sin(angle));
      y[index(i + d / 2)] = b * S(std::cos(angle)) + a * S(std::sin(angle));
    }
    return y;
  }

  /// heads[t][h] of all tokens; `which` is "q", "k" or "v".
  std::vector<Rows> heads_of(const std::string& prefix, const std::string& which,
                             const Rows& x_TD, std::int64_t heads) const {
    const std::string self = prefix + "self_attn." + which;
    std::vector<Rows> result(x_TD.size());
    for (std::size_t t = 0; t < x_TD.size(); ++t) {
      Row all = linear(at(self + "_proj.weight"), x_TD[t]);
      if (config_.qkv_bias) add(all, at(self + "_proj.bias"), S(1.0));
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto first = all.begin() + h * config_.head_dim;
        const Row head(first, first + config_.head_dim);
        result[t].push_back(which == "v" ? head
                                         : conditioned(self + "_norm.weight", t, head));
      }
    }
    return result;
  }

  Rows attention(const std::string& prefix) const {
    Rows x_TD;
    for (const Row& x : x_TD_)
      x_TD.push_back(norm(x, at(prefix + "input_layernorm.weight")));
    const auto q = heads_of(prefix, "q", x_TD, config_.heads);
    const auto k = heads_of(prefix, "k", x_TD, config_.kv_heads);
    const auto v = heads_of(prefix, "v", x_TD, config_.kv_heads);
    Rows y_TD;
    for (std::size_t t = 0; t < x_TD.size(); ++t) {
      const std::size_t first = t - t % index(batch_.sequence);
      Row o;
      for (std::int64_t h = 0; h < config_.heads; ++h) {
        const std::size_t g = index(h / (config_.heads / config_.kv_heads));
        const Row head = attend(q[t][index(h)], k, v, g, first, t);
        o.insert(o.end(), head.begin(), head.end());
      }
      y_TD.push_back(linear(at(prefix + "self_attn.o_proj.weight"), o));
    }
    return y_TD;
  }

  /// One query over the keys and values of positions first .. last.
  Row attend(const Row& q, const std::vector<Rows>& k, const std::vector<Rows>& v,
             std::size_t g, std::size_t first, std::size_t last) const {
    Row scores;
    for (std::size_t s = first; s <= last; ++s) {
      scores.push_back(dot(q, k[s][g]) /
                       S(std::sqrt(static_cast<double>(config_.head_dim))));
    }
    const Row p = softmax(scores);
    Row y(q.size(), S(0.0));
    for (std::size_t s = first; s <= last; ++s) add(y, v[s][g], p[s - first]);
    return y;
  }

  /// Largest first; the lower index of equals.
  std::vector<std::size_t> choose(const Row& logits_E) const {
    std::vector<std::size_t> order(logits_E.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return value_of(logits_E[a]) > value_of(logits_E[b]);
    });
    order.resize(index(config_.moe.top_k));
    return order;
  }

  Row weights_of(const Row& logits_E, const std::vector<std::size_t>& chosen) const {
    const bool after = config_.moe.score == plan::RouterScore::kSoftmaxAfterTopK;
    const Row source = after ? logits_E : softmax(logits_E);
    Row w_K;
    for (const std::size_t e : chosen) w_K.push_back(source[e]);
    if (after) return softmax(w_K);
    if (!config_.moe.normalize) return w_K;
    const S sum = std::accumulate(w_K.begin(), w_K.end(), S(0.0));
    for (S& w : w_K) w = w / sum;
    return w_K;
  }

  void moe(std::int64_t layer, const std::string& prefix, const Rows& x_TD) {
    const bool mixtral = config_.family == plan::Family::kMixtral;
    const std::string module = prefix + (mixtral ? "block_sparse_moe." : "mlp.");
    Rows logits_TE;
    std::vector<std::vector<std::size_t>> chosen_TK;
    for (std::size_t t = 0; t < x_TD.size(); ++t) {
      logits_TE.push_back(linear(at(module + "gate.weight"), x_TD[t]));
      chosen_TK.push_back(choose(logits_TE[t]));
      if (batch_.real_T[t] != 0) {
        const Row w_K = weights_of(logits_TE[t], chosen_TK[t]);
        for (std::size_t k = 0; k < w_K.size(); ++k) {
          const std::string expert =
              module + "experts." + std::to_string(chosen_TK[t][k]) + ".";
          const Row y = mixtral ? swiglu(expert + "w1.weight", expert + "w3.weight",
                                         expert + "w2.weight", x_TD[t])
                                : feed_forward(expert, x_TD[t]);
          add(x_TD_[t], y, w_K[k]);
        }
      }
      if (config_.moe.shared_ffn > 0) shared(module, x_TD[t], x_TD_[t]);
    }
    router_losses(layer, logits_TE, chosen_TK);
  }

  void shared(const std::string& module, const Row& x, Row& y) const {
    S gate = 1.0;
    if (config_.moe.shared_gate) {
      gate = logistic(dot(at(module + "shared_expert_gate.weight"), x));
    }
    add(y, feed_forward(module + "shared_expert.", x), gate);
  }

  void router_losses(std::int64_t layer, const Rows& logits_TE,
                     const std::vector<std::vector<std::size_t>>& chosen_TK) {
    const bool by_sequence =
        config_.moe.auxiliary_scope == plan::AuxiliaryScope::kSequence;
    const std::int64_t groups = by_sequence ? batch_.sequences : 1;
    const std::size_t size = logits_TE.size() / index(groups);
    for (std::size_t first = 0; first < logits_TE.size(); first += size) {
      add_losses_of_group(layer, logits_TE, chosen_TK, first, first + size,
                          1.0 / static_cast<double>(groups));
    }
  }

  void add_losses_of_group(std::int64_t layer, const Rows& logits_TE,
                           const std::vector<std::vector<std::size_t>>& chosen_TK,
                           std::size_t first, std::size_t last, double share) {
    const std::size_t experts = index(config_.moe.experts);
    std::vector<double> counts_E(experts, 0.0);
    Row probability_E(experts, S(0.0));
    S z = 0.0;
    double tokens = 0.0;
    for (std::size_t t = first; t < last; ++t) {
      if (batch_.real_T[t] == 0) continue;
      tokens += 1.0;
      for (const std::size_t e : chosen_TK[t]) counts_E[e] += 1.0;
      add(probability_E, softmax(logits_TE[t]), S(1.0));
      const S log_sum = log_sum_exp(logits_TE[t]);
      z += log_sum * log_sum;
    }
    if (tokens == 0.0) return;
    S balance = 0.0;
    for (std::size_t e = 0; e < experts; ++e) {
      const double f = counts_E[e] / (tokens * static_cast<double>(config_.moe.top_k));
      balance += S(f) * probability_E[e] / S(tokens);
      result_.counts_LE[index(layer) * experts + e] += counts_E[e];
    }
    const double factor =
        share * config_.moe.auxiliary_coefficient * static_cast<double>(experts);
    result_.auxiliary_L[index(layer)] += S(factor) * balance;
    result_.z_L[index(layer)] += S(share * config_.moe.z_coefficient / tokens) * z;
  }

  void head() {
    const Row& head_VD =
        at(config_.tied ? "model.embed_tokens.weight" : "lm_head.weight");
    for (std::size_t t = 0; t < x_TD_.size(); ++t) {
      const Row logits_V = linear(head_VD, norm(x_TD_[t], at("model.norm.weight")));
      if (batch_.loss_mask_T[t] != 0) {
        result_.cross_entropy +=
            log_sum_exp(logits_V) - logits_V[index(batch_.labels_T[t])];
      }
      result_.logits_TV.insert(result_.logits_TV.end(), logits_V.begin(), logits_V.end());
    }
  }

  const plan::ModelConfig& config_;
  const Tensors<S>& weights_;
  const HostBatch& batch_;
  Rows x_TD_;
  ReferenceResult<S> result_;
};

template <class S>
ReferenceResult<S> reference_forward(const plan::ModelConfig& config,
                                     const Tensors<S>& weights, const HostBatch& batch) {
  return ReferenceTransformer<S>(config, weights, batch).forward();
}

}  // namespace pleat::test
