// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/run_history.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "pleat/train/machine.hpp"

namespace pleat::train {
namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "unknown";
  return name.data();
}

/// The environment is anyone's: what it says must stay within a line.
std::string one_word(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  std::string word(text.substr(0, kLongest));
  std::replace_if(
      word.begin(), word.end(), [](char c) { return c <= ' ' || c == '\x7f'; }, '_');
  return word;
}

std::string batch_job() {
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "FLUX_JOB_ID"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return fmt::format(" (job {})", one_word(value));
  }
  return "";
}

}  // namespace

std::string history_line(std::int64_t first_step, const comm::GridShape& shape) {
  return fmt::format("{} from step {} on {} rank{} of host {}{}, {}, {}", utc_now(), first_step,
                     shape.ranks(), shape.ranks() == 1 ? "" : "s", one_word(host_name()),
                     batch_job(), describe_grid(shape), build_description());
}

std::string extended_history(const std::string& before, const std::string& line) {
  return before.empty() ? line : before + "\n" + line;
}

}  // namespace pleat::train
