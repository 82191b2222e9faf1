// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/run_folder.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <unistd.h>

#include "pleat/base/error.hpp"
#include "pleat/io/durable_file.hpp"

namespace pleat::train {

namespace fs = std::filesystem;

bool RunFolder::exists() const {
  std::error_code error;
  return fs::is_directory(path_, error);
}

void RunFolder::create() const {
  std::error_code error;
  fs::create_directories(path_, error);
  std::string reason = error ? error.message() : "";
  if (reason.empty() && !fs::is_directory(path_)) reason = "it is not a folder";
  // A probe file: permission bits alone do not tell of a read-only or full file system.
  const std::string probe = path_ + "/.write-probe." + std::to_string(getpid());
  if (reason.empty()) {
    std::ofstream file(probe);
    file << "pleat\n";
    file.close();
    if (!file) reason = std::strerror(errno);
    fs::remove(probe, error);
  }
  PLEAT_REQUIRE(reason.empty(), InputError, "PL0703",
                "the output folder '{}' cannot be written: {}\n"
                "HINT: set run.output to a folder in which you may create files.",
                path_, reason);
}

void RunFolder::set_aside_earlier_run(Log& log) const {
  for (const std::string& old : {metrics(), checkpoints(), gradients(), this->log()}) {
    if (!fs::exists(old)) continue;
    std::string kept;
    for (int number = 1; kept.empty() || fs::exists(kept); ++number) {
      kept = old + ".old-" + std::to_string(number);
    }
    fs::rename(old, kept);
    log.warn("an earlier run's '{}' is kept as '{}'", old, kept);
  }
}

void RunFolder::write_deck(const std::string& resolved_deck) const {
  io::write_durably(deck(), resolved_deck);
}

}  // namespace pleat::train
