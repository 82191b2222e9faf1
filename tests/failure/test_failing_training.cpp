// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Training on several ranks of which one dies, or all fail alike.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <thread>

#include "failure/messages.hpp"
#include "support/mpiexec.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class FailingTraining : public ProgramTest {
 protected:
  static constexpr int kRanks = 4;

  CommandResult train(const std::string& overrides) const {
    return pleat("train deck.toml " + overrides, mpiexec(kRanks));
  }
  void SetUp() override {
    ProgramTest::SetUp();
    write("deck.toml",
          "[run]\nsteps = 100000\noutput = \"out\"\n"
          "[model]\nlayers = 2\nhidden = 32\nheads = 4\nvocab = 64\n"
          "[moe]\nexperts = 4\nffn = 32\n"
          "[parallel]\npipeline = 2\nexpert = 2\n"
          "[batch]\nsequence = 16\nmicro = 1\nglobal = 4\n"
          "[data]\nformat = \"synthetic\"\n"
          "[checkpoint]\nevery = 50\nkeep = 1\n");
  }

  /// A rank of this test's job: a process of the program in the scratch folder.
  pid_t find_rank() const {
    for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
      std::error_code error;
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      if (fs::read_symlink(entry.path() / "cwd", error) != fs::canonical(path("."))) continue;
      if (fs::read_symlink(entry.path() / "exe", error) != fs::canonical(PLEAT_PROGRAM)) continue;
      return static_cast<pid_t>(std::stol(name));
    }
    return -1;
  }

  bool has_rows() const {
    std::ifstream file(path("out/metrics.csv"));
    std::string line;
    return std::getline(file, line) && std::getline(file, line);
  }
};

TEST_F(FailingTraining, AKilledRankEndsTheJobAtAnyMoment) {
  for (const auto moment : {0ms, 3ms, 17ms, 61ms, 143ms}) {
    fs::remove_all(path("out"));
    auto job = std::async(std::launch::async, [&] { return train(""); });
    const Clock::time_point patience = Clock::now() + 60s;
    while (!has_rows() && Clock::now() < patience) std::this_thread::sleep_for(20ms);
    ASSERT_TRUE(has_rows());
    std::this_thread::sleep_for(moment);
    const pid_t rank = find_rank();
    ASSERT_GT(rank, 0);
    kill(rank, SIGKILL);
    const Clock::time_point killed = Clock::now();
    const CommandResult result = job.get();
    EXPECT_LT(Clock::now() - killed, 10s);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_EQ(find_rank(), -1) << "no rank is left behind";
  }
}

TEST_F(FailingTraining, NumbersThatOverflowAreToldOnceWithStepAndPlace) {
  const CommandResult result = train("optimizer.lr=1e30 optimizer.clip=0 precision.compute=fp32");
  EXPECT_EQ(result.exit_code, 3) << result.output;
  EXPECT_EQ(messages_in(result.output), 1) << result.output;
  EXPECT_NE(result.output.find("PL0710"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("step "), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("there is no checkpoint yet"), std::string::npos)
      << result.output;
}

TEST_F(FailingTraining, TheLastCheckpointIsNamed) {
  const CommandResult result = train(
      "optimizer.lr=1e30 optimizer.clip=0 precision.compute=fp32 checkpoint.every=1");
  EXPECT_EQ(result.exit_code, 3) << result.output;
  EXPECT_NE(result.output.find("the last checkpoint is that of step 1"), std::string::npos)
      << result.output;
  EXPECT_TRUE(fs::exists(path("out/checkpoints/step_00000001.h5")));
}

TEST_F(FailingTraining, AMappingThatDoesNotFitIsToldOnceAndNothingIsWritten) {
  for (const char* overrides : {"parallel.tensor=3", "parallel.expert=8", "parallel.pipeline=4",
                                "parallel.context=4 batch.sequence=12"}) {
    const CommandResult result = train(overrides);
    EXPECT_EQ(result.exit_code, 2) << overrides << result.output;
    EXPECT_EQ(messages_in(result.output), 1) << overrides << result.output;
    EXPECT_NE(result.output.find("HINT"), std::string::npos) << overrides << result.output;
    EXPECT_FALSE(fs::exists(path("out"))) << overrides;
  }
}

// Large files are not read when they are opened; the ranks of one data rank alone meet the
// token, five steps later.
TEST_F(FailingTraining, ABadTokenInTheMiddleOfARunIsToldOnce) {
  constexpr std::uintmax_t kTooLargeToCheck = std::uintmax_t{68} << 20;
  constexpr int kSample = 17, kPosition = 3, kLength = 16;
  const std::string beginning(kSample * kLength + kPosition, ' ');
  fs::resize_file(write("large.txt", beginning + '~'), kTooLargeToCheck);  // the rest: zeros
  const Clock::time_point start = Clock::now();
  const CommandResult result =
      train("data.format=text data.path=large.txt data.shuffle=false");
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_EQ(messages_in(result.output), 1) << result.output;
  EXPECT_NE(result.output.find("PL0504: "), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("sample 17 has token 126 at position 3"),
            std::string::npos) << result.output;
  std::ifstream rows(path("out/metrics.csv"));
  const std::string text{std::istreambuf_iterator<char>(rows), {}};
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 4) << text;
}

TEST_F(FailingTraining, AMissingFileIsToldOnce) {
  const CommandResult result = train("data.format=text data.path=absent.txt");
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_EQ(messages_in(result.output), 1) << result.output;
  EXPECT_FALSE(fs::exists(path("out")));
}

}  // namespace
}  // namespace pleat::test
