// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief One rank of a training run fails in each phase of a step, in every way: the job
/// is over within 10 s, with one message. failing_phase.cpp makes it fail.

#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "failure/messages.hpp"
#include "pleat/base/phase.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

constexpr int kRanks = 4;

// Two stages of two data ranks; every phase occurs, and each rank has an expert.
constexpr const char* kDeck = R"(
[run]
steps = 30
output = "out"
[model]
layers = 4
hidden = 32
heads = 4
vocab = 64
ffn = 48
[moe]
experts = 4
ffn = 32
dense_layers = [0]
[parallel]
pipeline = 2
expert = 2
[batch]
sequence = 16
micro = 1
global = 4
[data]
format = "synthetic"
[checkpoint]
every = 1
keep = 1
)";

struct Failure {
  Phase phase;
  int rank;
  int entry;  ///< when the phase begins for the n-th time
  std::string kind;
};

/// Another rank for each phase, one that has it.
int rank_in(Phase phase) {
  switch (phase) {
    case Phase::kEmbedding:
    case Phase::kDenseFfn:
      return 1;  // of the first stage
    case Phase::kHead:
      return 2;  // of the last
    default:
      return static_cast<int>(phase) % kRanks;
  }
}

struct Outcome : CommandResult {
  double seconds = 0.0;
};

class FailingPhases : public ProgramTest, public testing::WithParamInterface<Phase> {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write("deck.toml", kDeck);
  }

  Outcome train(const Failure& failure, int ranks = kRanks,
                const std::string& overrides = "") const {
    const std::string launcher =
        ranks > 1 ? fmt::format("'{}' -n {} ", PLEAT_MPIEXEC, ranks) : "";
    const std::string environment = fmt::format(
        "timeout 30 {}env OMP_NUM_THREADS=1 LD_PRELOAD='{}:{}' KOKKOS_TOOLS_LIBS='{}' "
        "PLEAT_TEST_RANK={} PLEAT_TEST_PHASE={} PLEAT_TEST_ENTRY={} "
        "PLEAT_TEST_FAILURE={}",
        launcher, PLEAT_TEST_PRELOAD, PLEAT_FAILING_PHASE, PLEAT_FAILING_PHASE,
        failure.rank, phase_name(failure.phase), failure.entry, failure.kind);
    const auto start = std::chrono::steady_clock::now();
    Outcome outcome{pleat("train deck.toml " + overrides, environment)};
    outcome.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return outcome;
  }

  /// In the first step, then in a later one, most phases in the backward pass.
  std::vector<Failure> failures(const std::string& kind) const {
    const int rank = rank_in(GetParam());
    return {{GetParam(), rank, 1, kind}, {GetParam(), rank, 7, kind}};
  }

  /// The whole job, its start included, takes less than the 10 s that its end may take.
  void expect_over(const Failure& failure, const Outcome& outcome) const {
    EXPECT_LT(outcome.seconds, 10.0) << outcome.output;
    EXPECT_NE(outcome.exit_code, 0)
        << "phase " << phase_name(failure.phase) << " entry " << failure.entry << "\n"
        << outcome.output;
  }

  /// One message, with its exit code.
  void expect_one_message(const Failure& failure, const Outcome& outcome) const {
    expect_over(failure, outcome);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
    EXPECT_EQ(messages_in(outcome.output), 1) << outcome.output;
    EXPECT_THAT(outcome.output, Not(HasSubstr("Abort(")));
    EXPECT_THAT(outcome.output, Not(HasSubstr("terminate called")));
  }
  /// ... from the rank that failed.
  void expect_told(const Failure& failure, const Outcome& outcome) const {
    expect_one_message(failure, outcome);
    EXPECT_THAT(outcome.output,
                HasSubstr(fmt::format("pleat: rank {} of {}: PL", failure.rank, kRanks)));
  }
};

TEST_P(FailingPhases, AnExceptionIsTold) {
  for (const Failure& failure : failures("exception")) {
    const Outcome outcome = train(failure);
    expect_told(failure, outcome);
    EXPECT_THAT(outcome.output,
                HasSubstr("PL0103: unexpected failure: a failure made by a test"));
  }
}

TEST_P(FailingPhases, ExhaustedMemoryIsTold) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer has an allocation of its own";
#endif
  for (const Failure& failure : failures("any")) {
    const Outcome outcome = train(failure);
    expect_told(failure, outcome);
    EXPECT_THAT(outcome.output, HasSubstr("PL0102: out of memory"));
  }
}

// Where only large blocks are refused, what fails are tensors, buffers of MPI, which the
// other side may be the first to find out, and at the latest those of a checkpoint.
TEST_P(FailingPhases, RefusedTensorsAreTold) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer has an allocation of its own";
#endif
  const Failure failure{GetParam(), rank_in(GetParam()), 1, "large"};
  const Outcome outcome = train(failure);
  expect_one_message(failure, outcome);
  EXPECT_THAT(outcome.output, AnyOf(HasSubstr("PL0102: "), HasSubstr("PL0810: ")));
}

TEST_P(FailingPhases, AKilledRankIsTold) {
  for (const Failure& failure : failures("kill")) {
    const Outcome outcome = train(failure);
    expect_over(failure, outcome);
    EXPECT_EQ(count(outcome.output, "BAD TERMINATION"), 1) << outcome.output;
  }
}

// Nobody else is there: the stack is unwound, and MPI is left as it should be.
TEST_P(FailingPhases, OneRankByItselfTells) {
  for (const char* kind : {"exception", "any", "large"}) {
#if defined(__SANITIZE_ADDRESS__)
    if (kind != std::string("exception")) continue;
#endif
    const Outcome outcome =
        train({GetParam(), 0, 1, kind}, 1, "parallel.pipeline=1 parallel.expert=1");
    EXPECT_LT(outcome.seconds, 10.0);
    EXPECT_EQ(outcome.exit_code, 1) << kind << "\n" << outcome.output;
    EXPECT_EQ(messages_in(outcome.output), 1) << kind << "\n" << outcome.output;
    EXPECT_THAT(outcome.output, Not(HasSubstr("MPIDI")));
  }
}

std::vector<Phase> all_phases() {
  std::vector<Phase> phases;
  for (std::size_t i = 0; i < kPhases; ++i) phases.push_back(static_cast<Phase>(i));
  return phases;
}

INSTANTIATE_TEST_SUITE_P(Each, FailingPhases, testing::ValuesIn(all_phases()),
                         [](const auto& info) { return phase_name(info.param); });

class FailingCheckpoint : public FailingPhases {};

// What fails of its files all ranks agree on, and the run goes on; a lack of memory only
// the rank knows that has it, and the others would wait for it.
TEST_F(FailingCheckpoint, MemoryThatOneRankLacksEndsTheJob) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer has an allocation of its own";
#endif
  for (const char* asynchronous : {"true", "false"}) {
    for (const int rank : {0, 3}) {
      const Failure failure{Phase::kInputOutput, rank, 2, "large"};
      const Outcome outcome =
          train(failure, kRanks, std::string("checkpoint.asynchronous=") + asynchronous);
      expect_told(failure, outcome);
      EXPECT_THAT(outcome.output, HasSubstr("PL0102: out of memory"));
    }
  }
}

}  // namespace
}  // namespace pleat::test
