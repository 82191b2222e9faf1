// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/run_history.hpp"

#include <cstdlib>
#include <ctime>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "pleat/train/machine.hpp"

namespace pleat::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class RunHistory : public testing::Test {
 protected:
  RunHistory() {
    for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "FLUX_JOB_ID"}) unsetenv(name);
  }
  ~RunHistory() override {
    for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "FLUX_JOB_ID"}) unsetenv(name);
  }

  const comm::GridShape shape_{{.tensor = 2, .expert = 4}, 8};
};

TEST_F(RunHistory, ALineSaysWhenWhereAndWithWhat) {
  std::string host(256, '\0');
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  host.resize(host.find('\0'));
  const std::string line = history_line(120, shape_);
  EXPECT_THAT(line, AllOf(HasSubstr(" from step 120 on 8 ranks of host " + host + ", pp=1 dp=4"),
                          HasSubstr(describe_grid(shape_)), HasSubstr(build_description()),
                          Not(HasSubstr("job")), Not(HasSubstr("\n"))));
  EXPECT_THAT(history_line(0, comm::GridShape({}, 1)), HasSubstr("on 1 rank of"));
}

TEST_F(RunHistory, TheTimeIsNowInUtc) {
  // A zone far from Greenwich would show in the hours.
  setenv("TZ", "Asia/Kathmandu", 1);
  tzset();
  const std::time_t before = std::time(nullptr);
  const std::string line = history_line(0, shape_);
  const std::time_t after = std::time(nullptr);
  unsetenv("TZ");
  tzset();
  std::tm parts{};
  const char* rest = strptime(line.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  ASSERT_NE(rest, nullptr);
  EXPECT_EQ(std::string(rest).substr(0, 2), "Z ");
  const std::time_t shown = timegm(&parts);
  EXPECT_GE(shown, before);
  EXPECT_LE(shown, after);
}

TEST_F(RunHistory, TheBatchJobIsNamed) {
  setenv("FLUX_JOB_ID", "f3xY", 1);
  EXPECT_THAT(history_line(0, shape_), HasSubstr(" (Flux job f3xY), pp="));
  setenv("PBS_JOBID", "12.server", 1);
  EXPECT_THAT(history_line(0, shape_), HasSubstr(" (PBS job 12.server), pp="));
  setenv("SLURM_JOB_ID", "4711", 1);
  EXPECT_THAT(history_line(0, shape_), HasSubstr(" (Slurm job 4711), pp="));
}

TEST_F(RunHistory, WhateverTheEnvironmentSaysALineStaysALine) {
  setenv("SLURM_JOB_ID", ("1\n2 3" + std::string(1000, 'x')).c_str(), 1);
  const std::string line = history_line(0, shape_);
  EXPECT_THAT(line, AllOf(HasSubstr("(Slurm job 1_2_3xxx"), Not(HasSubstr("\n"))));
  EXPECT_LT(line.size(), 600U);
}

TEST_F(RunHistory, LinesFollowEachOther) {
  const std::string one = extended_history("", "a");
  EXPECT_EQ(one, "a");
  EXPECT_EQ(extended_history(extended_history(one, "b"), "c"), "a\nb\nc");
}

}  // namespace
}  // namespace pleat::train
