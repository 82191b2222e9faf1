// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A run folder has one holder, in this process or another, however that ends.

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pleat/base/error.hpp"
#include "pleat/train/run_lock.hpp"
#include "support/as_nobody.hpp"

namespace {
int refuse_locks_with = 0;  ///< errno of a file system without locks; 0: has them
}

/// Takes the place of the C library's for the whole test.
extern "C" int fcntl(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (command == F_OFD_SETLK && refuse_locks_with != 0) {
    errno = refuse_locks_with;
    return -1;
  }
  using Function = int (*)(int, int, ...);
  static const auto original = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "fcntl"));
  return original(descriptor, command, argument);
}

namespace pleat::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RunLockTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "pleat-lock-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    refuse_locks_with = 0;
    fs::remove_all(folder_);
  }

  /// The refusal's message; empty when the lock was free.
  std::string refusal() {
    try {
      const RunLock lock(folder_, log_);
    } catch (const InputError& error) {
      EXPECT_EQ(error.id(), "PL0731");
      return error.what();
    }
    return {};
  }

  std::string folder_;
  Log log_{false};
};

/// Another process that holds the lock until it is killed.
class Holder {
 public:
  explicit Holder(const std::string& folder) {
    std::array<int, 2> pipe_ends{};
    EXPECT_EQ(pipe(pipe_ends.data()), 0);
    process_ = fork();
    if (process_ == 0) hold(folder, pipe_ends[1]);
    close(pipe_ends[1]);
    char holds = 'n';
    EXPECT_EQ(read(pipe_ends[0], &holds, 1), 1);
    EXPECT_EQ(holds, 'y');
    close(pipe_ends[0]);
  }
  ~Holder() { kill(); }

  int process() const { return process_; }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    int status = 0;
    waitpid(process_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    process_ = 0;
  }

 private:
  [[noreturn]] static void hold(const std::string& folder, int answer) {
    try {
      Log log(false);
      const RunLock lock(folder, log);
      static_cast<void>(!write(answer, "y", 1));
      while (true) pause();
    } catch (...) {
      static_cast<void>(!write(answer, "n", 1));
    }
    _exit(1);
  }

  pid_t process_ = 0;
};

TEST_F(RunLockTest, SecondInTheSameProcessIsRefused) {
  std::optional<RunLock> first(std::in_place, folder_, log_);
  EXPECT_THAT(refusal(), HasSubstr(folder_));
  EXPECT_THAT(refusal(), HasSubstr("HINT: "));
  EXPECT_NE(refusal(), "") << "a refused attempt must not free the lock";
  first.reset();
  EXPECT_EQ(refusal(), "");
}

TEST_F(RunLockTest, TheMessageNamesTheHolder) {
  setenv("SLURM_JOB_ID", "991", 1);
  Holder holder(folder_);
  unsetenv("SLURM_JOB_ID");
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string message = refusal();
  EXPECT_THAT(message, HasSubstr("host " + std::string(host.data())));
  EXPECT_THAT(message, HasSubstr("process " + std::to_string(holder.process()) + ","));
  EXPECT_THAT(message, HasSubstr("Slurm job 991"));
  EXPECT_THAT(message, testing::ContainsRegex("since 20[0-9-]+ [0-9:]+ UTC"));
}

/// As in a folder of a group, where the holder is another user.
TEST_F(RunLockTest, OneWhoMayOnlyReadTheFileIsRefusedToo) {
  const Holder holder(folder_);
  fs::permissions(folder_, fs::perms::all);
  fs::permissions(folder_ + "/.lock",
                  fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read);
  const test::AsNobody other_user;
  const std::string message = refusal();
  EXPECT_THAT(message, HasSubstr("process " + std::to_string(holder.process()) + ","));
}

TEST_F(RunLockTest, FreedWhenTheHolderIsKilled) {
  Holder holder(folder_);
  EXPECT_NE(refusal(), "");
  holder.kill();
  EXPECT_TRUE(fs::exists(folder_ + "/.lock"));
  EXPECT_EQ(refusal(), "");
}

TEST_F(RunLockTest, AShorterTextReplacesALongerOne) {
  setenv("PBS_JOBID", std::string(100, '7').c_str(), 1);
  EXPECT_EQ(refusal(), "");
  unsetenv("PBS_JOBID");
  const Holder holder(folder_);
  EXPECT_THAT(refusal(), testing::Not(HasSubstr(std::string(20, '7'))));
}

TEST_F(RunLockTest, FileSystemsWithoutLocksGiveAWarning) {
  for (const int error : {ENOLCK, EOPNOTSUPP, EINVAL, ENOSYS}) {
    refuse_locks_with = error;
    testing::internal::CaptureStdout();
    Log log;
    { const RunLock lock(folder_, log); }
    EXPECT_THAT(testing::internal::GetCapturedStdout(),
                testing::AllOf(HasSubstr("WARNING"), HasSubstr(folder_)));
  }
}

}  // namespace
}  // namespace pleat::train
