// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A failure on some ranks ends the whole job soon, with one message and its code.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "failure/messages.hpp"
#include "support/command.hpp"
#include "support/mpiexec.hpp"

namespace pleat::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kEvery = -1;
constexpr int kAllButTheFirst = -2;

CommandResult run(const std::string& launcher, const std::string& kind, int which) {
  return run_command(
      fmt::format("timeout 30 {} '{}' {} {}", launcher, PLEAT_FAILING_RANK, kind, which));
}

/// Four ranks; the job is dead within 10 s and says one thing, from one rank.
void expect_ended(const std::string& kind, int which, int exit_code,
                  const std::string& message) {
  const CommandResult outcome = run(mpiexec(4), kind, which);
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
  EXPECT_LT(outcome.seconds, 10.0);
  EXPECT_THAT(outcome.output, HasSubstr(message));
  EXPECT_EQ(messages_in(outcome.output), 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, " started\n"), 4) << "lost output: " << outcome.output;
  EXPECT_THAT(outcome.output, Not(HasSubstr("Abort(")));
  EXPECT_THAT(outcome.output, Not(HasSubstr("terminate called")));
}

TEST(RankFailure, TheProgramItselfIsSound) {
  const CommandResult outcome = run(mpiexec(4), "none", kEvery);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST(RankFailure, ExceptionsOnOneRank) {
  expect_ended("input", 0, 2, "pleat: rank 0 of 4: PL0203: a bad key\n");
  expect_ended("numerical", 3, 3, "pleat: rank 3 of 4: PL0701: a loss of nan\n");
  expect_ended("io", 1, 4, "pleat: rank 1 of 4: PL0301: a full disk\n");
  expect_ended("foreign", 2, 1,
               "pleat: rank 2 of 4: PL0103: unexpected failure: something");
  expect_ended("number", 1, 1, "pleat: rank 1 of 4: PL0103: unexpected failure");
}

TEST(RankFailure, OutOfMemoryOnOneRank) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer ends the process where memory is exhausted";
#endif
  expect_ended("allocation", 1, 1, "pleat: rank 1 of 4: PL0102: out of memory");
  expect_ended("view", 0, 1, "pleat: rank 0 of 4: PL0102: out of memory");
}

TEST(RankFailure, TerminateAndOtherThreads) {
  expect_ended("terminate", 1, 1, "pleat: rank 1 of 4: PL0103: ");
  expect_ended("thread", 0, 3, "pleat: rank 0 of 4: PL0701: a loss of nan\n");
}

TEST(RankFailure, UnwindingDoesNotWaitForOtherRanks) {
  expect_ended("under_way", 0, 2, "pleat: rank 0 of 4: PL0203: caught on the way");
}

TEST(RankFailure, AllRanksAlikeSpeakOnce) {
  expect_ended("input", kEvery, 2, "pleat: rank 0 of 4: PL0203: a bad key\n");
  expect_ended("input", kAllButTheFirst, 2, "pleat: rank 1 of 4: PL0203: a bad key\n");
}

// The launcher sees these, not the program.
TEST(RankFailure, KilledRanks) {
  for (const char* kind : {"kill", "segmentation"}) {
    const CommandResult outcome = run(mpiexec(4), kind, 2);
    EXPECT_NE(outcome.exit_code, 0) << outcome.output;
    EXPECT_LT(outcome.seconds, 10.0);
    EXPECT_EQ(count(outcome.output, "BAD TERMINATION"), 1) << outcome.output;
  }
}

TEST(RankFailure, SingleRanksNameNoRank) {
  const CommandResult input = run("env", "input", 0);
  EXPECT_EQ(input.exit_code, 2);
  EXPECT_THAT(input.output, HasSubstr("pleat: PL0203: a bad key\n"));
  const CommandResult thread = run("env", "thread", 0);
  EXPECT_EQ(thread.exit_code, 3);
  EXPECT_EQ(messages_in(thread.output), 1) << thread.output;
}

}  // namespace
}  // namespace pleat::test
