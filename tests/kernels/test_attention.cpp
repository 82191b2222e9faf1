// SPDX-License-Identifier: Apache-2.0
// Blockwise attention, as the program calls it and in each of its variants, against a serial
// reference that does store S x S, and against central differences.
#include "attention_host.hpp"
#include "attention_portable.hpp"
#include "gemm_host.hpp"
#include "pleat/kernels/attention.hpp"
#include "reference.hpp"

namespace pleat::test {
namespace {

using kernels::AttentionShape;

double scale_of(const AttentionShape& shape) { return 1.0 / std::sqrt(double(shape.head_dim)); }

struct Forward {
  Values o, lse;
};

/// Element (token, head, i) of rows that hold `columns` elements, heads side by side.
std::size_t at(const AttentionShape& shape, Index columns, Index b, Index s, Index head,
               Index i) {
  return (b * shape.sequence + s) * columns + head * shape.head_dim + i;
}

/// Calls body(b, h, kv) for every sequence and query head.
template <class Body>
void for_each_head(const AttentionShape& shape, const Body& body) {
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h) body(b, h, h / (shape.heads / shape.kv_heads));
  }
}

/// Probabilities of one head, [S, S], and the logarithms of their denominators.
Values probabilities(const AttentionShape& shape, const Values& qkv, Index b, Index h, Index kv,
                     Values& lse) {
  const Index size = shape.sequence, row = shape.row_size();
  Values p(size * size, 0.0);
  for (Index q = 0; q < size; ++q) {
    double sum = 0.0;
    for (Index k = 0; k <= q; ++k) {
      double score = 0.0;
      for (Index i = 0; i < shape.head_dim; ++i) {
        score += qkv[at(shape, row, b, q, h, i)] * qkv[at(shape, row, b, k, shape.heads + kv, i)];
      }
      p[q * size + k] = std::exp(scale_of(shape) * score);
      sum += p[q * size + k];
    }
    for (Index k = 0; k <= q; ++k) p[q * size + k] /= sum;
    lse[h * shape.tokens() + b * size + q] = std::log(sum);
  }
  return p;
}

Forward reference_forward(const AttentionShape& shape, const Values& qkv) {
  const Index row = shape.row_size(), out = shape.heads * shape.head_dim;
  Forward result{Values(shape.tokens() * out, 0.0), Values(shape.heads * shape.tokens(), 0.0)};
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

Values reference_backward(const AttentionShape& shape, const Values& qkv, const Values& d_out) {
  const Index size = shape.sequence, row = shape.row_size(), out = shape.heads * shape.head_dim;
  Values gradient(qkv.size(), 0.0), lse(shape.heads * shape.tokens());
  for_each_head(shape, [&](Index b, Index h, Index kv) {
    const Values p = probabilities(shape, qkv, b, h, kv, lse);
    const Index k_head = shape.heads + kv, v_head = shape.heads + shape.kv_heads + kv;
    for (Index q = 0; q < size; ++q) {
      Values dp(q + 1, 0.0);
      double delta = 0.0;
      for (Index k = 0; k <= q; ++k) {
        for (Index i = 0; i < shape.head_dim; ++i) {
          dp[k] += d_out[at(shape, out, b, q, h, i)] * qkv[at(shape, row, b, k, v_head, i)];
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

std::vector<AttentionShape> shapes() {
  return {{1, 1, 1, 1, 8},    {1, 2, 4, 2, 8},     {2, 17, 4, 1, 16},  {1, 63, 2, 2, 64},
          {1, 64, 7, 1, 32},  {3, 65, 2, 1, 24},   {1, 130, 2, 1, 64}, {2, 33, 4, 4, 128},
          {1, 19, 8, 2, 256}, {1, 300, 4, 2, 16},  {0, 5, 2, 1, 8},    {1, 251, 3, 3, 40},
          {5, 1, 2, 2, 10},   {2, 513, 1, 1, 8}};
}

std::string describe(const AttentionShape& shape) {
  return fmt::format("B {} S {} heads {}/{} x {}", shape.batch, shape.sequence, shape.heads,
                     shape.kv_heads, shape.head_dim);
}

/// The ways to compute it; kProgram is what the public functions choose.
enum class Variant { kProgram, kPortable, kHostFused, kHostSplit };

std::vector<Variant> variants() {
#if defined(PLEAT_HOST_GEMM)
  return {Variant::kProgram, Variant::kPortable, Variant::kHostFused, Variant::kHostSplit};
#else
  return {Variant::kProgram, Variant::kPortable};
#endif
}

/// One problem on the device.
template <class T>
struct Case {
  using A = Accumulator<T>;
  AttentionShape shape;
  DeviceView<T, 2> qkv_TQ, o_TO, do_TO, dqkv_TQ;
  DeviceView<A, 2> lse_HT;
  Arena scratch{"test"};

  Case(const AttentionShape& the_shape, const Values& qkv, const Values& d_out)
      : shape(the_shape) {
    const Index out = shape.heads * shape.head_dim;
    qkv_TQ = to_device<T>(qkv, shape.tokens(), shape.row_size());
    do_TO = to_device<T>(d_out, shape.tokens(), out);
    // Results overwrite whatever was there.
    o_TO = to_device<T>(Values(shape.tokens() * out, std::nan("")), shape.tokens(), out);
    dqkv_TQ = to_device<T>(Values(qkv.size(), std::nan("")), shape.tokens(), shape.row_size());
    lse_HT = DeviceView<A, 2>("lse", shape.heads, shape.tokens());
  }

  void forward(Variant variant) {
    const A scale(scale_of(shape));
    if (variant == Variant::kProgram) {
      kernels::attention_forward<T>(ExecSpace(), shape, scale, qkv_TQ, scratch, o_TO, lse_HT);
    } else if (variant == Variant::kPortable) {
      kernels::portable_attention_forward<T>(ExecSpace(), shape, scale, qkv_TQ, o_TO, lse_HT);
    } else {
#if defined(PLEAT_HOST_GEMM)
      kernels::host_attention_forward<T>(ExecSpace(), shape, scale, qkv_TQ, scratch, o_TO,
                                         lse_HT);
#endif
    }
  }

  void backward(Variant variant) {
    const A scale(scale_of(shape));
    if (variant == Variant::kProgram) {
      kernels::attention_backward<T>(ExecSpace(), shape, scale, qkv_TQ, o_TO, lse_HT, do_TO,
                                     scratch, dqkv_TQ);
    } else if (variant == Variant::kPortable) {
      kernels::portable_attention_backward<T>(ExecSpace(), shape, scale, qkv_TQ, o_TO, lse_HT,
                                              do_TO, scratch, dqkv_TQ);
    } else {
#if defined(PLEAT_HOST_GEMM)
      kernels::host_attention_backward<T>(ExecSpace(), shape, scale, qkv_TQ, o_TO, lse_HT, do_TO,
                                          variant == Variant::kHostFused
                                              ? kernels::BackwardTasks::kFused
                                              : kernels::BackwardTasks::kSplit,
                                          scratch, dqkv_TQ);
#endif
    }
  }
};

Values qkv_of(const AttentionShape& shape) {
  return random_values(shape.tokens() * shape.row_size(), 1);
}
Values d_out_of(const AttentionShape& shape) {
  return random_values(shape.tokens() * shape.heads * shape.head_dim, 2);
}

template <class T>
class Attention : public testing::Test {};
TYPED_TEST_SUITE(Attention, Scalars);

TYPED_TEST(Attention, ForwardEqualsReference) {
  using T = TypeParam;
  for (const AttentionShape& shape : shapes()) {
    const Values qkv = qkv_of(shape);
    const Forward expected = reference_forward(shape, qkv);
    for (const Variant variant : variants()) {
      Case<T> problem(shape, qkv, d_out_of(shape));
      problem.forward(variant);
      expect_close(to_host(problem.o_TO), expected.o, tolerance<T>(), describe(shape));
      expect_close(to_host(problem.lse_HT), expected.lse, tolerance<T>(), describe(shape));
    }
  }
}

TYPED_TEST(Attention, BackwardEqualsReference) {
  using T = TypeParam;
  for (const AttentionShape& shape : shapes()) {
    const Values qkv = qkv_of(shape), d_out = d_out_of(shape);
    const Values expected = reference_backward(shape, qkv, d_out);
    for (const Variant variant : variants()) {
      Case<T> problem(shape, qkv, d_out);
      problem.forward(variant);
      problem.backward(variant);
      expect_close(to_host(problem.dqkv_TQ), expected, tolerance<T>(), describe(shape));
    }
  }
}

TYPED_TEST(Attention, SameBitsEveryTime) {
  using T = TypeParam;
  const AttentionShape shape{2, 131, 4, 2, 32};
  for (const Variant variant : variants()) {
    Case<T> first(shape, qkv_of(shape), d_out_of(shape));
    first.forward(variant);
    first.backward(variant);
    for (int repeat = 0; repeat < 3; ++repeat) {
      Case<T> again(shape, qkv_of(shape), d_out_of(shape));
      again.forward(variant);
      again.backward(variant);
      expect_same(to_host(again.o_TO), to_host(first.o_TO), "o");
      expect_same(to_host(again.dqkv_TQ), to_host(first.dqkv_TQ), "dqkv");
    }
  }
}

TYPED_TEST(Attention, LargeScoresDoNotOverflow) {
  using T = TypeParam;
  const AttentionShape shape{1, 70, 2, 1, 16};
  // Scores in the thousands: every row is one-hot to rounding.
  Values qkv = qkv_of(shape);
  for (double& x : qkv) x *= 40.0;
  for (const Variant variant : variants()) {
    Case<T> problem(shape, qkv, d_out_of(shape));
    problem.forward(variant);
    problem.backward(variant);
    for (const double x : to_host(problem.o_TO)) ASSERT_LE(std::abs(x), 400.0);
    for (const double x : to_host(problem.dqkv_TQ)) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST(AttentionGradient, EqualsCentralDifferences) {
  for (const AttentionShape& shape :
       {AttentionShape{1, 1, 2, 1, 8}, AttentionShape{2, 5, 4, 2, 8},
        AttentionShape{1, 67, 2, 1, 16}, AttentionShape{1, 9, 7, 1, 12}}) {
    const Values weight = d_out_of(shape);
    const auto loss = [&](const Values& qkv) {
      Case<double> problem(shape, qkv, weight);
      problem.forward(Variant::kProgram);
      return dot(weight, to_host(problem.o_TO));
    };
    const Values qkv = qkv_of(shape);
    Case<double> problem(shape, qkv, weight);
    problem.forward(Variant::kProgram);
    problem.backward(Variant::kProgram);
    expect_gradient(loss, qkv, to_host(problem.dqkv_TQ), describe(shape));
  }
}

TEST(AttentionMemory, GrowsLinearlyWithTheSequence) {
  const auto held = [](Index sequence) {
    const AttentionShape shape{1, sequence, 2, 1, 8};
    Case<float> problem(shape, qkv_of(shape), d_out_of(shape));
    problem.forward(Variant::kProgram);
    problem.backward(Variant::kProgram);
    return problem.scratch.capacity();
  };
  // An S x S tile of 4096 positions alone would take 64 MiB.
  EXPECT_LE(held(4096), std::size_t{4} << 20);
}

TEST(AttentionTasks, FewSequencesAreSplit) {
  using kernels::BackwardTasks;
  const auto tasks = [](Index batch, Index kv_heads, int threads) {
    return kernels::choose_backward_tasks({batch, 64, 8, kv_heads, 8}, threads);
  };
#if defined(PLEAT_HOST_GEMM)
  EXPECT_EQ(tasks(4, 4, 2), BackwardTasks::kFused);
  EXPECT_EQ(tasks(1, 1, 1), BackwardTasks::kFused);
  EXPECT_EQ(tasks(1, 1, 2), BackwardTasks::kSplit);
  EXPECT_EQ(tasks(1, 4, 64), BackwardTasks::kSplit);
  EXPECT_EQ(tasks(1, 3, 4), BackwardTasks::kFused);
#endif
}

TEST(AttentionShapeCheck, RefusesRowsThatDoNotFit) {
  const AttentionShape shape{1, 4, 2, 1, 8};
  Case<float> problem(shape, qkv_of(shape), d_out_of(shape));
  problem.shape.head_dim = 16;
  EXPECT_THROW(problem.forward(Variant::kProgram), InternalError);
}

}  // namespace
}  // namespace pleat::test
