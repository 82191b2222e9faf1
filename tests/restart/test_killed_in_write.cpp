// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A run that is killed before each single operation on the files of its checkpoints:
/// making, writing, flushing, renaming, removing.

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>

#include "pleat/io/checkpoint.hpp"
#include "restart_run.hpp"

namespace pleat::test {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 6;
constexpr int kEvery = 2;
/// With two kept the third checkpoint removes the first.
constexpr const char* kOverrides = "run.steps=6 checkpoint.every=2 checkpoint.keep=2";

struct Operation {
  int number;
  std::string name;
  std::string file;
};

class KilledInWrite : public RestartTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    RestartTest::SetUp();
    overrides_ = std::string(kOverrides) + " checkpoint.asynchronous=" + GetParam();
  }

  std::map<std::string, std::string> faults(const std::string& run) const {
    return {{"PLEAT_TEST_FOLDER", checkpoints(run)}};
  }

  std::vector<Operation> all_operations() {
    auto environment = faults("whole");
    environment["PLEAT_TEST_OPERATIONS"] = path("operations");
    const JobResult result = start(1, "whole", overrides_, environment)->wait();
    EXPECT_EQ(result.exit_code, 0) << result.output;
    std::vector<Operation> operations;
    std::istringstream text(text_of_file(path("operations")));
    for (Operation next; text >> next.number >> next.name >> next.file;) {
      operations.push_back(next);
    }
    return operations;
  }

  /// Those after which the folder is another one, and of a file's many writes some.
  static std::vector<int> chosen(const std::vector<Operation>& operations) {
    constexpr int kOneOf = 100;
    std::vector<int> numbers;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      // The second checkpoint is like the first; the third removes one.
      if (operations[i].file.starts_with("step_00000004")) continue;
      const auto is_write = [&](std::size_t j) {
        return j < operations.size() && operations[j].name.find("write") != std::string::npos;
      };
      const bool among_writes = is_write(i) && i > 0 && is_write(i - 1) && is_write(i + 1);
      if (!among_writes || operations[i].number % kOneOf == 0) {
        numbers.push_back(operations[i].number);
      }
    }
    return numbers;
  }

  std::string overrides_;
};

TEST_P(KilledInWrite, BeforeEachOperation) {
  const std::vector<Operation> operations = all_operations();
  ASSERT_GT(operations.size(), 20u) << "the preloaded library sees nothing";
  const std::vector<int> numbers = chosen(operations);
  int continued = 0;
  for (const int number : numbers) {
    const Operation& operation = operations.at(static_cast<std::size_t>(number - 1));
    SCOPED_TRACE(fmt::format("operation {}: {} {}", number, operation.name, operation.file));
    auto environment = faults("cut");
    environment["PLEAT_TEST_KILL_BEFORE"] = std::to_string(number);
    const JobResult killed = start(1, "cut", overrides_, environment)->wait();
    ASSERT_EQ(killed.exit_code, 128 + SIGKILL) << killed.output;
    const std::int64_t recorded = last_recorded_step(path("cut/metrics.csv"));
    const std::int64_t resumable = resumable_step("cut");
    EXPECT_LE(recorded - resumable, kEvery) << "more than an interval is lost";
    // A resumed run that has no rows of the steps before cannot get them any more.
    EXPECT_GE(recorded, resumable) << "row " << recorded << ", checkpoint " << resumable;
    complete(1, "cut", overrides_);
    expect_same_runs("whole", "cut", kSteps);
    EXPECT_EQ(resumable_step("cut"), kSteps);
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints("cut"))) {
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
      EXPECT_NE(entry.path().extension(), ".space") << entry.path();
    }
    ++continued;
    if (HasFailure()) return;
    fs::remove_all(path("cut"));
  }
  std::printf("killed before %d of %zu operations\n", continued, operations.size());
}

INSTANTIATE_TEST_SUITE_P(Asynchronous, KilledInWrite, ::testing::Values("true", "false"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace pleat::test
