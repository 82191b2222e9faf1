// SPDX-License-Identifier: Apache-2.0
// Which attention goes to cuDNN, and what follows when it refuses or is wrong, over a stand-in.
// What is believed is remembered, so each test has heads of its own.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include "attention_check.hpp"
#include "attention_cudnn.hpp"
#include "attention_reference.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/processor.hpp"
#include "stand_in/attention_switches.hpp"

namespace pleat::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

/// The workspaces of attention, as Kokkos takes and gives back their memory.
struct Workspaces {
  static inline std::int64_t live = 0, most = 0;  ///< bytes, from here on
  static bool is_workspace(const char* label) {
    return std::string_view(label) == "pleat::kernels::attention";
  }

  Workspaces() {
    live = most = 0;
    namespace tools = Kokkos::Tools::Experimental;
    tools::set_allocate_data_callback([](const Kokkos_Profiling_SpaceHandle, const char* label,
                                         const void*, const std::uint64_t bytes) {
      if (!is_workspace(label)) return;
      live += static_cast<std::int64_t>(bytes);
      most = std::max(most, live);
    });
    tools::set_deallocate_data_callback([](const Kokkos_Profiling_SpaceHandle,
                                           const char* label, const void*,
                                           const std::uint64_t bytes) {
      if (is_workspace(label)) live -= static_cast<std::int64_t>(bytes);
    });
  }
  ~Workspaces() {
    Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
    Kokkos::Tools::Experimental::set_deallocate_data_callback(nullptr);
  }
};

struct CudnnAttention : testing::Test {
  ~CudnnAttention() override {
    attention_stand_in() = {};
    kernels::set_attention_by_products(false);
  }
};

TEST_F(CudnnAttention, TakesWholeTilesAndChecksEachShapeOnce) {
  // Each way is checked once, then run for each sequence.
  EXPECT_EQ(graphs_run({1, 128, 4, 2, 16}), 4);
  EXPECT_EQ(graphs_run({1, 256, 4, 2, 16}), 4) << "another length";
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
  kernels::set_attention_by_products(true);
  EXPECT_EQ(graphs_run({1, 128, 4, 2, 16}), 0) << "as the environment may wish";
}

/// What is said while both ways run; `graphs` of them are expected.
std::string said(const Problem& shape, int graphs) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(graphs_run(shape), graphs);
  return testing::internal::GetCapturedStderr();
}

TEST_F(CudnnAttention, RefusalLeadsToTheProducts) {
  attention_stand_in().refuses = true;
  EXPECT_THAT(said({1, 128, 4, 2, 24}, 0),
              AllOf(HasSubstr("WARNING: stand-in is not used for attention forward with 4/2 "
                              "heads of 24 over 128 tokens: it was told to refuse; "),
                    HasSubstr("attention backward")));
  attention_stand_in().refuses = false;
  EXPECT_EQ(said({1, 128, 4, 2, 24}, 0), "") << "it is remembered, and told once";
}

TEST_F(CudnnAttention, LargeWorkspaceLeadsToTheProducts) {
  const Workspaces workspaces;
  const auto most = static_cast<std::size_t>(this_processor().bytes / 32);
  attention_stand_in().workspace_bytes = most + 1;
  EXPECT_THAT(said({1, 128, 4, 2, 48}, 0), HasSubstr("GiB of workspace, more than"));
  EXPECT_EQ(said({1, 128, 4, 2, 48}, 0), "");
  EXPECT_EQ(workspaces.most, 0);
}

TEST_F(CudnnAttention, WrongNumbersLeadToTheProducts) {
  const Workspaces workspaces;
  attention_stand_in().gives_wrong_numbers = true;
  attention_stand_in().workspace_bytes = 4096;
  const std::string warnings = said({1, 128, 4, 2, 32}, 2);  // the checks alone
  EXPECT_THAT(warnings, HasSubstr("not used for attention forward"));
  EXPECT_THAT(warnings, HasSubstr("not used for attention backward"));
  EXPECT_THAT(warnings, HasSubstr("dk is off by"));
  EXPECT_GT(workspaces.most, 0);
  EXPECT_LE(workspaces.live, 0) << "what is not used is given back";
  EXPECT_EQ(said({1, 128, 4, 2, 32}, 0), "");
}

TEST_F(CudnnAttention, FailureOfTheCheckLeadsToTheProducts) {
  attention_stand_in().fails = true;
  EXPECT_THAT(said({1, 128, 4, 2, 56}, 2),
              HasSubstr("it failed when it was checked: the stand-in was told to"));
  attention_stand_in().fails = false;
  EXPECT_EQ(said({1, 128, 4, 2, 56}, 0), "");
}

/// The identifier and text of the error that ends both ways.
std::pair<std::string, std::string> error_of(const Problem& shape) {
  try {
    graphs_run(shape);
  } catch (const InternalError& error) {
    return {error.id(), error.what()};
  }
  return {};
}

TEST_F(CudnnAttention, FailureIsAnError) {
  EXPECT_EQ(graphs_run({1, 128, 4, 2, 40}), 4);
  attention_stand_in().fails = true;
  const auto [id, text] = error_of({1, 128, 4, 2, 40});
  EXPECT_EQ(id, "PL0815");
  EXPECT_THAT(text, HasSubstr("HINT: with PLEAT_ATTENTION=products"));
}

TEST_F(CudnnAttention, OldAndNewWorkspaceAreNotHeldTogether) {
  attention_stand_in().workspace_bytes = 100000;
  EXPECT_EQ(graphs_run({1, 128, 3, 1, 64}), 4);
  const Workspaces workspaces;
  attention_stand_in().workspace_bytes = 300000;
  EXPECT_EQ(graphs_run({1, 128, 3, 1, 72}), 4);
  // The sum begins behind the old one: without it, it is negative for a moment.
  EXPECT_LT(workspaces.most, 300000);
}

/// Bytes of addresses of this process.
std::size_t used_address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

#if !defined(__SANITIZE_ADDRESS__)  // which takes address space of its own
TEST_F(CudnnAttention, NoMemoryIsAnErrorAndNoOtherWay) {
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const std::size_t bytes = static_cast<std::size_t>(this_processor().bytes / 32) / 2;
  attention_stand_in().workspace_bytes = bytes;
  const rlimit tight{.rlim_cur = used_address_space() + bytes / 2,
                     .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_AS, &tight);
  const auto [id, text] = error_of({1, 128, 4, 2, 80});
  setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(id, "PL0816");
  EXPECT_THAT(text, AllOf(HasSubstr("GiB in attention forward with 4/2 heads of 80"),
                          HasSubstr("HINT: ")));
  attention_stand_in().workspace_bytes = 64;
  EXPECT_EQ(graphs_run({1, 128, 4, 2, 80}), 4) << "nothing was decided";
}
#endif

TEST(AttentionCheck, TakesTheWholeSequenceUpToALimit) {
  kernels::GraphShape shape{.sequence = 4096, .heads = 48, .kv_heads = 8, .head_dim = 128};
  shape.lse_stride = 4096;
  EXPECT_EQ(kernels::checked_case(shape).sequence, 4096);
  EXPECT_FALSE(kernels::checked_case(shape).lse_apart);
  shape.sequence = 32768;
  EXPECT_EQ(kernels::checked_case(shape).sequence, 8192);
}

/// Of two columns of 256 rows: 1 in the first 128, 2^-7 in the others, but for one element.
double difference(double actual, double expected, double least = 0x1p-1000) {
  const auto rows = [](double last) {
    Values values(512, 1.0);
    std::fill(values.begin() + 256, values.end(), 0x1p-7);
    values.back() = last;
    return to_device<float>(values, 256, 2);
  };
  return kernels::largest_difference<float>(ExecSpace(), {rows(actual), 0, 2},
                                            {rows(expected), 0, 2}, least);
}

TEST(AttentionCheck, DifferencesAreSharesOfTheRowsNearby) {
  EXPECT_EQ(difference(0x1p-7, 0x1p-7), 0.0);
  EXPECT_EQ(difference(0x1p-8, 0x1p-7), 0.5);
  EXPECT_EQ(difference(0x1p-8, 0x1p-7, 1.0), 0x1p-8);
}

TEST(AttentionCheck, WhatIsNoNumberIsInfinitelyFar) {
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    EXPECT_EQ(difference(value, 0x1p-7), HUGE_VAL) << value;
    EXPECT_EQ(difference(0x1p-7, value), HUGE_VAL) << value;
    EXPECT_EQ(difference(value, value), HUGE_VAL) << value;
  }
}

}  // namespace
}  // namespace pleat::test
