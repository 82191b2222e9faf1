// SPDX-License-Identifier: Apache-2.0
// Blockwise attention, as the program calls it and in each of its variants, against a
// serial reference that does store S x S, and against central differences.
#include "attention_reference.hpp"

namespace pleat::test {
namespace {

std::vector<Problem> shapes() {
  return {{1, 1, 1, 1, 8},    {1, 2, 4, 2, 8},    {2, 17, 4, 1, 16},  {1, 63, 2, 2, 64},
          {1, 64, 7, 1, 32},  {3, 65, 2, 1, 24},  {1, 130, 2, 1, 64}, {2, 33, 4, 4, 128},
          {1, 19, 8, 2, 256}, {1, 300, 4, 2, 16}, {0, 5, 2, 1, 8},    {1, 251, 3, 3, 40},
          {5, 1, 2, 2, 10},   {2, 513, 1, 1, 8},  {2, 128, 4, 2, 64}, {1, 256, 3, 1, 128}};
}

/// One problem on the device.
template <class T>
struct Case {
  Problem problem;
  Arrays<T> arrays;
  Arena scratch{"test"};

  Case(const Problem& the_problem, const Values& qkv, const Values& d_out)
      : problem(the_problem) {
    const Index tokens = problem.tokens(), out = problem.out_size();
    const auto qkv_TQ = to_device<T>(qkv, tokens, problem.row_size());
    // Results overwrite whatever was there.
    const auto dqkv_TQ =
        to_device<T>(Values(qkv.size(), std::nan("")), tokens, problem.row_size());
    using A = Accumulator<T>;
    arrays = {.q_TQ = qkv_TQ,
              .kv_UR = qkv_TQ,
              .o_TO = to_device<T>(Values(tokens * out, std::nan("")), tokens, out),
              .do_TO = to_device<T>(d_out, tokens, out),
              .dq_TQ = dqkv_TQ,
              .dkv_UR = dqkv_TQ,
              .lse_HT = DeviceView<A, 2>("lse", problem.heads, tokens),
              .delta_HT = DeviceView<A, 2>("delta", problem.heads, tokens)};
  }

  void forward(Variant variant) {
    run_forward<T>(variant, problem.fused(), Pieces::kFirst, arrays, scratch);
  }

  void backward(Variant variant) {
    kernels::attention_delta<T>(ExecSpace(), problem.heads, problem.head_dim, arrays.o_TO,
                                arrays.do_TO, arrays.delta_HT);
    run_backward<T>(variant, problem.fused(), Pieces::kFirst, false, arrays, scratch);
  }

  Values o() const { return to_host(arrays.o_TO); }
  Values lse() const { return to_host(arrays.lse_HT); }
  Values gradient() const { return to_host(arrays.dq_TQ); }
};

template <class T>
class Attention : public testing::Test {};
TYPED_TEST_SUITE(Attention, Storages);

TYPED_TEST(Attention, ForwardEqualsReference) {
  using T = TypeParam;
  for (const Problem& shape : shapes()) {
    const Values qkv = qkv_of(shape);
    const Forward expected = reference_forward(shape, qkv);
    for (const Variant variant : variants()) {
      Case<T> problem(shape, qkv, d_out_of(shape));
      problem.forward(variant);
      // As operands of a product of GPUs the probabilities are rounded to bf16, too.
      const bool rounded_twice =
          std::is_same_v<T, Bf16> && kByProducts && variant == Variant::kProgram;
      expect_close(problem.o(), expected.o, (rounded_twice ? 2.0 : 1.0) * tolerance<T>(),
                   describe(shape));
      expect_close(problem.lse(), expected.lse, tolerance<Accumulator<T>>(),
                   describe(shape));
    }
  }
}

TYPED_TEST(Attention, BackwardEqualsReference) {
  using T = TypeParam;
  for (const Problem& shape : shapes()) {
    const Values qkv = qkv_of(shape), d_out = d_out_of(shape);
    const Values expected = reference_backward(shape, qkv, d_out);
    for (const Variant variant : variants()) {
      Case<T> problem(shape, qkv, d_out);
      problem.forward(variant);
      problem.backward(variant);
      // In bf16 the gradient depends on the rounded output too.
      constexpr double kGrowth = std::is_same_v<T, Bf16> ? 2.0 : 1.0;
      expect_close(problem.gradient(), expected, kGrowth * tolerance<T>(),
                   describe(shape));
    }
  }
}

/// The host's tiles are larger there; the last of them is not full.
TYPED_TEST(Attention, LongSequencesEqualReference) {
  using T = TypeParam;
  const Problem shape{1, 4130, 1, 1, 8};
  const Values qkv = qkv_of(shape), d_out = d_out_of(shape);
  const Forward expected = reference_forward(shape, qkv);
  const Values gradient = reference_backward(shape, qkv, d_out);
  for (const Variant variant : variants()) {
    if (variant == Variant::kPortable) continue;  // one tile for all lengths
    Case<T> problem(shape, qkv, d_out);
    problem.forward(variant);
    problem.backward(variant);
    expect_close(problem.o(), expected.o, 2.0 * tolerance<T>(), describe(shape));
    expect_close(problem.gradient(), gradient, 2.0 * tolerance<T>(), describe(shape));
  }
}

TYPED_TEST(Attention, SameBitsEveryTime) {
  using T = TypeParam;
  const Problem shape{2, 131, 4, 2, 32};
  for (const Variant variant : variants()) {
    Case<T> first(shape, qkv_of(shape), d_out_of(shape));
    first.forward(variant);
    first.backward(variant);
    for (int repeat = 0; repeat < 3; ++repeat) {
      Case<T> again(shape, qkv_of(shape), d_out_of(shape));
      again.forward(variant);
      again.backward(variant);
      expect_same(again.o(), first.o(), "o");
      expect_same(again.gradient(), first.gradient(), "dqkv");
    }
  }
}

TYPED_TEST(Attention, LargeScoresDoNotOverflow) {
  using T = TypeParam;
  const Problem shape{1, 70, 2, 1, 16};
  // Scores in the thousands: every row is one-hot to rounding.
  Values qkv = qkv_of(shape);
  for (double& x : qkv) x *= 40.0;
  for (const Variant variant : variants()) {
    Case<T> problem(shape, qkv, d_out_of(shape));
    problem.forward(variant);
    problem.backward(variant);
    for (const double x : problem.o()) ASSERT_LE(std::abs(x), 400.0);
    for (const double x : problem.gradient()) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST(AttentionGradient, EqualsCentralDifferences) {
  for (const Problem& shape : {Problem{1, 1, 2, 1, 8}, Problem{2, 5, 4, 2, 8},
                               Problem{1, 67, 2, 1, 16}, Problem{1, 9, 7, 1, 12}}) {
    const Values weight = d_out_of(shape);
    const auto loss = [&](const Values& qkv) {
      Case<double> problem(shape, qkv, weight);
      problem.forward(Variant::kProgram);
      return dot(weight, problem.o());
    };
    const Values qkv = qkv_of(shape);
    Case<double> problem(shape, qkv, weight);
    problem.forward(Variant::kProgram);
    problem.backward(Variant::kProgram);
    expect_gradient(loss, qkv, problem.gradient(), describe(shape));
  }
}

TEST(AttentionMemory, GrowsLinearlyWithTheSequence) {
  const auto held = [](Index sequence) {
    const Problem shape{1, sequence, 2, 1, 8};
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
  [[maybe_unused]] const auto tasks = [](Index batch, Index kv_heads, int threads) {
    const Problem shape{batch, 64, 8, kv_heads, 8};
    return kernels::choose_backward_tasks(shape.fused(), threads);
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
  const Problem shape{1, 4, 2, 1, 8};
  Case<float> wrong(shape, qkv_of(shape), d_out_of(shape));
  wrong.problem.head_dim = 16;
  EXPECT_THROW(wrong.forward(Variant::kProgram), InternalError);
}

}  // namespace
}  // namespace pleat::test
