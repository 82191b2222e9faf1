// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A Slurm of the test's own (private_slurm), jobs in it, and runs to compare.

#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "pleat/io/checkpoint.hpp"
#include "support/mpiexec.hpp"
#include "support/program.hpp"

namespace pleat::test {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline bool wait_until(const std::function<bool()>& condition, int seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return true;
}

/// \brief Runs for the lifetime of the object. However the test ends, the pipe closes,
/// and private_slurm kills what it started.
class PrivateSlurm {
 public:
  explicit PrivateSlurm(const std::string& folder) : folder_(folder) {
    const std::string command = fmt::format("exec python3 '{}/slurm/private_slurm' '{}'",
                                            PLEAT_TESTS_DIR, folder);
    pipe_ = popen(command.c_str(), "w");
    wait_until([&] { return exists("ready") || exists("failed"); }, 120);
    if (exists("ready")) setenv("SLURM_CONF", (folder + "/slurm.conf").c_str(), 1);
  }
  ~PrivateSlurm() {
    if (pipe_ != nullptr) pclose(pipe_);
    unsetenv("SLURM_CONF");
  }
  PrivateSlurm(const PrivateSlurm&) = delete;
  PrivateSlurm& operator=(const PrivateSlurm&) = delete;

  bool runs() const { return exists("ready"); }
  std::string error() const { return read_file(folder_ + "/failed"); }
  std::string log() const { return read_file(folder_ + "/slurmctld.log"); }

 private:
  bool exists(const char* name) const {
    return std::filesystem::exists(folder_ + "/" + name);
  }

  std::string folder_;
  std::FILE* pipe_;
};

class SlurmTest : public ProgramTest {
 protected:
  static void SetUpTestSuite() {
    if (std::system(
            "PATH=$PATH:/usr/sbin; command -v slurmctld slurmd munged >/dev/null") != 0)
      return;
    std::string pattern =
        (std::filesystem::temp_directory_path() / "slurm-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    scratch_ = pattern;
    slurm_ = std::make_unique<PrivateSlurm>(scratch_ + "/slurm");
  }
  static void TearDownTestSuite() {
    slurm_.reset();
    std::error_code ignored;
    if (!scratch_.empty()) std::filesystem::remove_all(scratch_, ignored);
  }

  void SetUp() override {
    ProgramTest::SetUp();
    if (slurm_ == nullptr) {
      ASSERT_EQ(std::getenv("PLEAT_CI"), nullptr) << "there is no slurmctld";
      GTEST_SKIP() << "needs slurmctld, slurmd and munged (Debian: slurm-wlm, munge)";
    }
    ASSERT_TRUE(slurm_->runs()) << slurm_->error();
  }

  /// \brief stdout and stderr of a command in the scratch folder, without the last
  /// newline.
  std::string shell(const std::string& command) const {
    std::string text =
        run_command(fmt::format("cd '{}' && {}", folder_.string(), command)).output;
    if (text.ends_with('\n')) text.pop_back();
    return text;
  }

  /// \returns the number of the job, for further commands
  std::string submit(const std::string& script) const {
    const std::string job = shell("sbatch --parsable '" + script + "'");
    EXPECT_THAT(job, testing::MatchesRegex("[0-9]+"));
    return job;
  }
  /// \brief "JobState", "Restarts", "ExitCode" of a job.
  std::string field(const std::string& job, const std::string& name) const {
    const std::string text = " " + shell("scontrol --oneliner show job " + job);
    const std::size_t at = text.find(" " + name + "=");
    if (at == std::string::npos) return "";
    const std::size_t begin = at + name.size() + 2;
    return text.substr(begin, text.find(' ', begin) - begin);
  }
  std::string wait_for_end(const std::string& job) const {
    std::string state;
    wait_until(
        [&] {
          state = field(job, "JobState");
          return state == "COMPLETED" || state == "FAILED" || state == "CANCELLED" ||
                 state == "TIMEOUT" || state == "NODE_FAIL";
        },
        240);
    return state;
  }

  static std::string scratch_;
  static std::unique_ptr<PrivateSlurm> slurm_;
};

inline std::string SlurmTest::scratch_;
inline std::unique_ptr<PrivateSlurm> SlurmTest::slurm_;

}  // namespace pleat::test
