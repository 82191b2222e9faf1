// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/run_history.hpp"

#include <array>
#include <ctime>

#include <fmt/format.h>

#include "pleat/base/host.hpp"
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

}  // namespace

std::string history_line(std::int64_t first_step, const comm::GridShape& shape) {
  const std::string job = batch_job();
  return fmt::format("{} from step {} on {} rank{} of host {}{}, {}, {}", utc_now(), first_step,
                     shape.ranks(), shape.ranks() == 1 ? "" : "s", host_name(),
                     job.empty() ? "" : fmt::format(" ({})", job), describe_grid(shape),
                     build_description());
}

std::string extended_history(const std::string& before, const std::string& line) {
  return before.empty() ? line : before + "\n" + line;
}

}  // namespace pleat::train
