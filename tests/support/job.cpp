// SPDX-License-Identifier: Apache-2.0
#include "support/job.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace pleat::test {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The parent of a process, from the fields behind its name in parentheses; -1: it is gone.
pid_t parent_of(pid_t process) {
  const std::string text = read_text(fmt::format("/proc/{}/stat", process));
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 4 > text.size()) return -1;
  return static_cast<pid_t>(std::atoi(text.c_str() + name_end + 4));
}

bool descends_from(pid_t process, pid_t ancestor) {
  while (process > 1 && process != ancestor) process = parent_of(process);
  return process == ancestor;
}

/// The number that the launcher gave a rank.
int rank_of(pid_t process) {
  const std::string text = '\0' + read_text(fmt::format("/proc/{}/environ", process));
  for (const std::string name : {"PMI_RANK", "OMPI_COMM_WORLD_RANK"}) {
    const std::size_t at = text.find('\0' + name + "=");
    if (at != std::string::npos) return std::atoi(text.c_str() + at + name.size() + 2);
  }
  return 0;
}

bool is_alive(pid_t process) {
  const std::string text = read_text(fmt::format("/proc/{}/stat", process));
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.compare(name_end, 4, ") Z ") != 0 &&
         text.compare(name_end, 4, ") X ") != 0;
}

/// What stands before the program: the launcher, and the environment of the ranks. The job ends
/// with the test, also where that is killed while the job waits for it.
std::vector<std::string> command_of(const JobSettings& settings, const std::string& pause) {
  std::vector<std::string> words{"/usr/bin/setpriv", "--pdeathsig", "KILL"};
  if (settings.ranks > 1) {
    words.insert(words.end(), {PLEAT_MPIEXEC, "-n", std::to_string(settings.ranks)});
  }
  words.insert(words.end(), {"/usr/bin/env", "OMP_NUM_THREADS=1",
                             "LD_PRELOAD=" PLEAT_TEST_PRELOAD ":" PLEAT_TEST_FAULTS,
                             "PLEAT_TEST_PAUSE=" + pause});
  for (const auto& [name, value] : settings.environment) words.push_back(name + "=" + value);
  words.push_back(settings.program);
  return words;
}

}  // namespace

Job::Job(const JobSettings& settings, const std::vector<std::string>& arguments)
    : settings_(settings) {
  static std::atomic<int> number = 0;
  name_ = fmt::format("{}/job-{}", settings.folder, ++number);
  std::vector<std::string> words = command_of(settings, name_);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, settings.folder.c_str());
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, (name_ + ".out").c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0666);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  const int failed =
      posix_spawn(&launcher_, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    ADD_FAILURE() << "cannot start " << words[0];
    ended_ = true;
  }
}

Job::~Job() {
  if (!runs()) return;
  signal_all(SIGKILL);
  kill(launcher_, SIGKILL);
  waitpid(launcher_, nullptr, 0);
}

bool Job::runs() {
  if (ended_) return false;
  ended_ = waitpid(launcher_, &status_, WNOHANG) == launcher_;
  return !ended_;
}

JobResult Job::wait(std::chrono::seconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  while (runs() && Clock::now() < end) std::this_thread::sleep_for(1ms);
  if (!ended_) {
    ADD_FAILURE() << "the job hangs; so far it said\n" << output();
    signal_all(SIGKILL);
    kill(launcher_, SIGKILL);
    waitpid(launcher_, &status_, 0);
    ended_ = true;
  }
  // A launcher may be gone before the last of its ranks is.
  for (const pid_t rank : seen_) {
    while (is_alive(rank) && Clock::now() < end) std::this_thread::sleep_for(1ms);
    EXPECT_FALSE(is_alive(rank)) << "a rank outlives its job";
  }
  const int code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  return {code, output()};
}

std::vector<pid_t> Job::ranks() const {
  std::vector<std::pair<int, pid_t>> found;
  const fs::path program = fs::canonical(settings_.program);
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code gone;
    if (fs::read_symlink(entry.path() / "exe", gone) != program) continue;
    const auto process = static_cast<pid_t>(std::stol(name));
    if (descends_from(process, launcher_)) found.emplace_back(rank_of(process), process);
  }
  std::sort(found.begin(), found.end());
  std::vector<pid_t> processes;
  for (const auto& [rank, process] : found) processes.push_back(process);
  return processes;
}

std::vector<pid_t> Job::wait_for_ranks() {
  while (runs()) {
    seen_ = ranks();
    if (seen_.size() == static_cast<std::size_t>(settings_.ranks)) break;
    std::this_thread::sleep_for(500us);
  }
  return seen_;
}

void Job::signal(int number, int rank) {
  if (seen_.size() < static_cast<std::size_t>(settings_.ranks)) seen_ = ranks();
  if (!runs() || static_cast<std::size_t>(rank) >= seen_.size()) return;
  kill(seen_[static_cast<std::size_t>(rank)], number);
}

void Job::signal_all(int number) {
  if (seen_.size() < static_cast<std::size_t>(settings_.ranks)) seen_ = ranks();
  if (!runs()) return;
  for (const pid_t rank : seen_) kill(rank, number);
}

std::string Job::pause_file(const std::string& what, int step) const {
  return fmt::format("{}.{}-{}", name_, what, step);
}

void Job::pause_after(int step) const { std::ofstream(pause_file("wait", step)); }

bool Job::wait_for_pause(int step) {
  while (!fs::exists(pause_file("at", step))) {
    if (!runs()) return false;
    std::this_thread::sleep_for(500us);
  }
  return true;
}

void Job::go_on(int step) const { fs::remove(pause_file("wait", step)); }

std::string Job::output() const { return read_text(name_ + ".out"); }

}  // namespace pleat::test
