// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The log of a run that continues.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "pleat/base/error.hpp"
#include "pleat/train/run_folder.hpp"

namespace pleat::train {
namespace {

namespace fs = std::filesystem;

class TrimLog : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("pleat_run_log_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    path_ = (folder_ / "run.log").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string trimmed(const std::string& before, std::int64_t step) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << before;
    trim_log(path_, step);
    EXPECT_FALSE(fs::exists(path_ + ".tmp"));
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path folder_;
  std::string path_;
};

constexpr const char* kLog =
    "pleat 0.1.0\n"
    "step 8/12  loss 2.5000  lr 1.00e-03\n"
    "checkpoint out/checkpoints/step_00000008.h5\n"
    "step      9  validation loss 2.4000\n"
    "step 9/12  loss 2.4000\n"
    "WARNING: step 10: loss nan\n"
    "step 10/12  loss 2.3000\n"
    "stepping on 99 stones\n"
    "step by step\n";

TEST_F(TrimLog, OnlyLinesOfLaterStepsGo) {
  EXPECT_EQ(trimmed(kLog, 8),
            "pleat 0.1.0\n"
            "step 8/12  loss 2.5000  lr 1.00e-03\n"
            "checkpoint out/checkpoints/step_00000008.h5\n"
            "WARNING: step 10: loss nan\n"
            "stepping on 99 stones\n"
            "step by step\n");
  EXPECT_EQ(trimmed(kLog, 10), kLog);
  EXPECT_EQ(trimmed("step 1/2  loss\nx\n", 0), "x\n");
}

TEST_F(TrimLog, NumbersAreComparedAndNotTexts) {
  EXPECT_EQ(trimmed("step 9/99  a\nstep 10/99  b\nstep     11  c\nstep 2/99  d\n", 9),
            "step 9/99  a\nstep 2/99  d\n");
}

// A kill after any byte of the last line.
TEST_F(TrimLog, ACutLineIsEndedOrGoes) {
  const std::string whole = "step 4/12  loss 1\nsaved\nstep 12/12  loss 1.25\n";
  const std::string kept = "step 4/12  loss 1\nsaved\n";
  for (std::size_t length = kept.size() + 1; length < whole.size(); ++length) {
    const std::string before = whole.substr(0, length);
    const bool number = length > kept.size() + std::string("step ").size();
    // "step 1" may have been step 1, 12 or 100: it goes.
    EXPECT_EQ(trimmed(before, 4), number ? kept : before + "\n") << before;
    const bool step_known = length > kept.size() + std::string("step 12").size();
    EXPECT_EQ(trimmed(before, 12), number && !step_known ? kept : before + "\n") << before;
  }
  EXPECT_EQ(trimmed(kept + "WARNING: hal", 4), kept + "WARNING: hal\n");
}

TEST_F(TrimLog, BytesThatAreNoTextStay) {
  const std::string odd("\0\xff line\nstep 3/4  x\n\0", 22);
  EXPECT_EQ(trimmed(odd, 3), odd + (odd.back() == '\n' ? "" : "\n"));
  EXPECT_EQ(trimmed("step 99999999999999999999999/1  a\n", 5),
            "step 99999999999999999999999/1  a\n");
}

TEST_F(TrimLog, WithoutALogNothingHappens) {
  trim_log(path_, 5);
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_EQ(trimmed("", 5), "");
}

TEST_F(TrimLog, WhatCannotBeWrittenIsAnIoErrorAndTheLogStays) {
  std::ofstream(path_) << "step 9/9  x\n";
  fs::create_directories(path_ + ".tmp/in the way");
  EXPECT_THROW(trim_log(path_, 3), IoError);
  std::ifstream file(path_);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "step 9/9  x\n");
}

}  // namespace
}  // namespace pleat::train
