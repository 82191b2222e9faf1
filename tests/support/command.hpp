// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Running a command line and keeping what it says.

#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>

#include <sys/wait.h>

namespace pleat::test {

struct CommandResult {
  int exit_code = -1;  ///< 128 and the signal where one ended it
  std::string output;  ///< stdout and stderr together
  double seconds = 0.0;
};

/// \brief Runs `command` in a shell, to its end.
inline CommandResult run_command(const std::string& command) {
  const auto begin = std::chrono::steady_clock::now();
  std::FILE* const pipe = popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no process for: " + command);
  CommandResult result;
  std::array<char, 4096> buffer;
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.output.append(buffer.data(), count);
  }
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace pleat::test
