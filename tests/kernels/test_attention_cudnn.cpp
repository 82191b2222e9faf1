// SPDX-License-Identifier: Apache-2.0
// Which attention goes to cuDNN, and what follows when it refuses or is wrong, over a stand-in.
// What is believed is remembered, so each test has heads of its own.
#include <gmock/gmock.h>

#include "attention_reference.hpp"
#include "stand_in/attention_switches.hpp"

namespace pleat::test {
namespace {

/// Runs both ways in bf16, compares with the reference and returns how many graphs ran.
int graphs_run(const Problem& shape) {
  const Index tokens = shape.tokens(), out = shape.out_size();
  const Values qkv = qkv_of(shape), d_out = d_out_of(shape);
  const auto qkv_TQ = to_device<Bf16>(qkv, tokens, shape.row_size());
  const auto dqkv_TQ = to_device<Bf16>(Values(qkv.size(), 0.0), tokens, shape.row_size());
  const Arrays<Bf16> a{.q_TQ = qkv_TQ,
                       .kv_UR = qkv_TQ,
                       .o_TO = to_device<Bf16>(Values(tokens * out, 0.0), tokens, out),
                       .do_TO = to_device<Bf16>(d_out, tokens, out),
                       .dq_TQ = dqkv_TQ,
                       .dkv_UR = dqkv_TQ,
                       .lse_HT = DeviceView<float, 2>("lse", shape.heads, tokens),
                       .delta_HT = DeviceView<float, 2>("delta", shape.heads, tokens)};
  Arena scratch("test");
  const int before = attention_stand_in().run;
  run_forward<Bf16>(Variant::kProgram, shape.fused(), Pieces::kFirst, a, scratch);
  kernels::attention_delta<Bf16>(ExecSpace(), shape.heads, shape.head_dim, a.o_TO, a.do_TO,
                                 a.delta_HT);
  run_backward<Bf16>(Variant::kProgram, shape.fused(), Pieces::kFirst, false, a, scratch);
  const Forward expected = reference_forward(shape, qkv);
  expect_close(to_host(a.o_TO), expected.o, 2.0 * tolerance<Bf16>(), describe(shape));
  expect_close(to_host(a.lse_HT), expected.lse, tolerance<float>(), describe(shape));
  expect_close(to_host(dqkv_TQ), reference_backward(shape, qkv, d_out),
               2.0 * tolerance<Bf16>(), describe(shape));
  return attention_stand_in().run - before;
}

struct CudnnAttention : testing::Test {
  ~CudnnAttention() override { attention_stand_in() = {}; }
};

TEST_F(CudnnAttention, TakesWholeTilesAndChecksHeadsOnce) {
  // Each way is checked once, then run for each sequence.
  EXPECT_EQ(graphs_run({1, 128, 4, 2, 16}), 4);
  EXPECT_EQ(graphs_run({1, 256, 4, 2, 16}), 2);
  const int planned = attention_stand_in().planned;
  EXPECT_EQ(graphs_run({1, 128, 4, 2, 16}), 2);
  EXPECT_EQ(attention_stand_in().planned, planned);
  EXPECT_EQ(graphs_run({2, 128, 4, 2, 16}), 6) << "rows of lse with two sequences";
  EXPECT_EQ(graphs_run({2, 128, 6, 1, 128}), 6);
}

TEST_F(CudnnAttention, LeavesOthersToTheProducts) {
  EXPECT_EQ(graphs_run({1, 130, 4, 2, 16}), 0) << "a tail";
  EXPECT_EQ(graphs_run({1, 128, 2, 1, 12}), 0) << "heads of 12";
  EXPECT_EQ(graphs_run({1, 128, 2, 1, 136}), 0) << "heads of 136";
}

TEST_F(CudnnAttention, RefusalLeadsToTheProducts) {
  attention_stand_in().refuses = true;
  EXPECT_EQ(graphs_run({1, 128, 4, 2, 24}), 0);
  attention_stand_in().refuses = false;
  EXPECT_EQ(graphs_run({1, 128, 4, 2, 24}), 0) << "it is remembered";
}

TEST_F(CudnnAttention, LargeWorkspaceLeadsToTheProducts) {
  attention_stand_in().workspace_bytes = (std::size_t{1} << 30) + 1;
  EXPECT_EQ(graphs_run({1, 128, 4, 2, 48}), 0);
}

TEST_F(CudnnAttention, WrongNumbersLeadToTheProducts) {
  attention_stand_in().gives_wrong_numbers = true;
  testing::internal::CaptureStderr();
  EXPECT_EQ(graphs_run({1, 128, 4, 2, 32}), 2) << "the checks alone";
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, testing::HasSubstr("not used for attention forward"));
  EXPECT_THAT(warnings, testing::HasSubstr("not used for attention backward"));
  EXPECT_EQ(graphs_run({1, 256, 4, 2, 32}), 0);
}

TEST_F(CudnnAttention, FailureIsAnError) {
  EXPECT_EQ(graphs_run({1, 128, 4, 2, 40}), 4);
  attention_stand_in().fails = true;
  EXPECT_THROW(graphs_run({1, 128, 4, 2, 40}), InternalError);
}

}  // namespace
}  // namespace pleat::test
