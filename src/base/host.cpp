// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/host.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

namespace pleat {
namespace {

std::string one_word(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  std::string word(text.substr(0, kLongest));
  std::replace_if(
      word.begin(), word.end(), [](char c) { return c <= ' ' || c == '\x7f'; }, '_');
  return word;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "unknown";
  return one_word(name.data());
}

std::string batch_job() {
  constexpr std::array<std::array<const char*, 2>, 3> kVariables{{
      {"SLURM_JOB_ID", "Slurm"},
      {"PBS_JOBID", "PBS"},
      {"FLUX_JOB_ID", "Flux"},
  }};
  for (const auto& [variable, system] : kVariables) {
    const char* job = std::getenv(variable);
    if (job != nullptr && *job != '\0') return fmt::format("{} job {}", system, one_word(job));
  }
  return {};
}

}  // namespace pleat
