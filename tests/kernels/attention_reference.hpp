// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the tests of attention share: a serial reference over whole sequences that
/// does store S x S, and one way to call each variant of the kernels.

#include "attention_host.hpp"
#include "attention_portable.hpp"
#include "gemm_cublaslt.hpp"
#include "gemm_host.hpp"
#include "pleat/kernels/attention.hpp"
#include "reference.hpp"

namespace pleat::test {

using kernels::AttentionShape;
using kernels::Pieces;

/// \brief Whole sequences; rows of the fused projection hold q heads, then k, then v
/// heads.
struct Problem {
  Index batch, sequence, heads, kv_heads, head_dim;
  Index tokens() const { return batch * sequence; }
  Index row_size() const { return (heads + 2 * kv_heads) * head_dim; }
  Index out_size() const { return heads * head_dim; }
  AttentionShape fused() const {
    return kernels::fused_attention_shape(batch, sequence, heads, kv_heads, head_dim);
  }
};

inline std::string describe(const Problem& shape) {
  return fmt::format("B {} S {} heads {}/{} x {}", shape.batch, shape.sequence,
                     shape.heads, shape.kv_heads, shape.head_dim);
}

inline double scale_of(const Problem& shape) {
  return 1.0 / std::sqrt(double(shape.head_dim));
}

struct Forward {
  Values o, lse;
};

/// Element (token, head, i) of rows that hold `columns` elements, heads side by side.
inline std::size_t at(const Problem& shape, Index columns, Index b, Index s, Index head,
                      Index i) {
  return (b * shape.sequence + s) * columns + head * shape.head_dim + i;
}

/// Calls body(b, h, kv) for every sequence and query head.
template <class Body>
void for_each_head(const Problem& shape, const Body& body) {
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h)
      body(b, h, h / (shape.heads / shape.kv_heads));
  }
}

/// Probabilities of one head, [S, S], and the logarithms of their denominators.
inline Values probabilities(const Problem& shape, const Values& qkv, Index b, Index h,
                            Index kv, Values& lse) {
  const Index size = shape.sequence, row = shape.row_size();
  Values p(size * size, 0.0);
  for (Index q = 0; q < size; ++q) {
    double sum = 0.0;
    for (Index k = 0; k <= q; ++k) {
      double score = 0.0;
      for (Index i = 0; i < shape.head_dim; ++i) {
        score += qkv[at(shape, row, b, q, h, i)] *
                 qkv[at(shape, row, b, k, shape.heads + kv, i)];
      }
      p[q * size + k] = std::exp(scale_of(shape) * score);
      sum += p[q * size + k];
    }
    for (Index k = 0; k <= q; ++k) p[q * size + k] /= sum;
    lse[h * shape.tokens() + b * size + q] = std::log(sum);
  }
  return p;
}

inline Forward reference_forward(const Problem& shape, const Values& qkv) {
  const Index row = shape.row_size(), out = shape.out_size();
  Forward result{Values(shape.tokens() * out, 0.0),
                 Values(shape.heads * shape.tokens(), 0.0)};
  for_each_head(shape, [&](Index b, Index h, Index kv) {
    const Values p = probabilities(shape, qkv, b, h, kv, result.lse);
    const Index v_head = shape.heads + shape.kv_heads + kv;
    for (Index q = 0; q < shape.sequence; ++q) {
      for (Index k = 0; k <= q; ++k) {
        for (Index i = 0; i < shape.head_dim; ++i) {
          result.o[at(shape, out, b, q, h, i)] +=
              p[q * shape.sequence + k] * qkv[at(shape, row, b, k, v_head, i)];
        }
      }
    }
  });
  return result;
}

inline Values reference_backward(const Problem& shape, const Values& qkv,
                                 const Values& d_out) {
  const Index size = shape.sequence, row = shape.row_size(), out = shape.out_size();
  Values gradient(qkv.size(), 0.0), lse(shape.heads * shape.tokens());
  for_each_head(shape, [&](Index b, Index h, Index kv) {
    const Values p = probabilities(shape, qkv, b, h, kv, lse);
    const Index k_head = shape.heads + kv, v_head = shape.heads + shape.kv_heads + kv;
    for (Index q = 0; q < size; ++q) {
      Values dp(q + 1, 0.0);
      double delta = 0.0;
      for (Index k = 0; k <= q; ++k) {
        for (Index i = 0; i < shape.head_dim; ++i) {
          dp[k] +=
              d_out[at(shape, out, b, q, h, i)] * qkv[at(shape, row, b, k, v_head, i)];
        }
        delta += p[q * size + k] * dp[k];
      }
      for (Index k = 0; k <= q; ++k) {
        const double ds = p[q * size + k] * (dp[k] - delta) * scale_of(shape);
        for (Index i = 0; i < shape.head_dim; ++i) {
          const std::size_t q_at = at(shape, row, b, q, h, i);
          const std::size_t k_at = at(shape, row, b, k, k_head, i);
          gradient[q_at] += ds * qkv[k_at];
          gradient[k_at] += ds * qkv[q_at];
          gradient[at(shape, row, b, k, v_head, i)] +=
              p[q * size + k] * d_out[at(shape, out, b, q, h, i)];
        }
      }
    }
  });
  return gradient;
}

/// \brief The ways to compute it; kProgram is what the public functions choose.
/// \brief Whether the program forms first pieces by products and further ones by the portable
/// kernel (attention_products.hpp).
#if defined(PLEAT_CUBLASLT_GEMM)
inline constexpr bool kByProducts = true;
#else
inline constexpr bool kByProducts = false;
#endif

enum class Variant { kProgram, kPortable, kHostFused, kHostSplit };

inline std::vector<Variant> variants() {
#if defined(PLEAT_HOST_GEMM)
  return {Variant::kProgram, Variant::kPortable, Variant::kHostFused,
          Variant::kHostSplit};
#else
  return {Variant::kProgram, Variant::kPortable};
#endif
}

/// \brief The arrays of one call of the kernels.
template <class T>
struct Arrays {
  using A = Accumulator<T>;
  DeviceView<T, 2> q_TQ, kv_UR, o_TO, do_TO, dq_TQ, dkv_UR;
  DeviceView<A, 2> lse_HT, delta_HT;
};

template <class T>
void run_forward(Variant variant, const AttentionShape& shape, Pieces pieces,
                 const Arrays<T>& a, Arena& scratch) {
  const auto scale = static_cast<Accumulator<T>>(1.0 / std::sqrt(double(shape.head_dim)));
  if (variant == Variant::kProgram) {
    kernels::attention_forward<T>(ExecSpace(), shape, scale, pieces, a.q_TQ, a.kv_UR,
                                  scratch, a.o_TO, a.lse_HT);
  } else if (variant == Variant::kPortable) {
    kernels::portable_attention_forward<T>(ExecSpace(), shape, scale, pieces, a.q_TQ,
                                           a.kv_UR, a.o_TO, a.lse_HT);
  } else {
#if defined(PLEAT_HOST_GEMM)
    kernels::host_attention_forward<T>(ExecSpace(), shape, scale, pieces, a.q_TQ, a.kv_UR,
                                       scratch, a.o_TO, a.lse_HT);
#endif
  }
}

template <class T>
void run_backward(Variant variant, const AttentionShape& shape, Pieces pieces,
                  bool accumulate_keys, const Arrays<T>& a, Arena& scratch) {
  const auto scale = static_cast<Accumulator<T>>(1.0 / std::sqrt(double(shape.head_dim)));
  if (variant == Variant::kProgram) {
    kernels::attention_backward<T>(ExecSpace(), shape, scale, pieces, accumulate_keys,
                                   a.q_TQ, a.kv_UR, a.o_TO, a.lse_HT, a.delta_HT,
                                   a.do_TO, scratch, a.dq_TQ, a.dkv_UR);
  } else if (variant == Variant::kPortable) {
    kernels::portable_attention_backward<T>(ExecSpace(), shape, scale, pieces,
                                            accumulate_keys, a.q_TQ, a.kv_UR, a.lse_HT,
                                            a.delta_HT, a.do_TO, a.dq_TQ, a.dkv_UR);
  } else {
#if defined(PLEAT_HOST_GEMM)
    const auto tasks = variant == Variant::kHostFused ? kernels::BackwardTasks::kFused
                                                      : kernels::BackwardTasks::kSplit;
    kernels::host_attention_backward<T>(
        ExecSpace(), shape, scale, pieces, accumulate_keys, a.q_TQ, a.kv_UR, a.lse_HT,
        a.delta_HT, a.do_TO, tasks, scratch, a.dq_TQ, a.dkv_UR);
#endif
  }
}

// Numbers that all types hold.
inline Values qkv_of(const Problem& shape) {
  return random_values<Bf16>(shape.tokens() * shape.row_size(), 1);
}
inline Values d_out_of(const Problem& shape) {
  return random_values<Bf16>(shape.tokens() * shape.out_size(), 2);
}

}  // namespace pleat::test
