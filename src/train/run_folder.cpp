// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/run_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

#include "pleat/base/error.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/io/places.hpp"

namespace pleat::train {

namespace fs = std::filesystem;

bool RunFolder::exists() const {
  std::error_code reason;
  const fs::file_status status = fs::status(path_, reason);
  PLEAT_REQUIRE(status.type() != fs::file_type::none, InputError, "PL0703",
                "the output folder '{}' cannot be used: {}\n"
                "HINT: set run.output to a folder in which you may create files.",
                path_, reason.message());
  return fs::is_directory(status);
}

namespace {

void make_writable_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  const bool in_the_way = !error && !fs::is_directory(path, error);
  if (!error && !in_the_way) error = io::why_not_writable(path);
  // Not a matter of the deck: with room the same job goes on.
  const bool full = error.value() == ENOSPC || error.value() == EDQUOT;
  PLEAT_REQUIRE(!full, IoError, "PL0310",
                "there is no room in the output folder '{}': {}\n"
                "HINT: check free space and quota.",
                path, error.message());
  const std::string reason = in_the_way ? "it is not a folder" : error.message();
  PLEAT_REQUIRE(!error && !in_the_way, InputError, "PL0703",
                "the output folder '{}' cannot be written: {}\n"
                "HINT: set run.output to a folder in which you may create files.",
                path, reason);
}

}  // namespace

void RunFolder::create() const { make_writable_folder(path_); }

void RunFolder::require_places() const {
  std::error_code error;
  const auto require = [&](bool usable, const std::string& place, const char* expected) {
    PLEAT_REQUIRE(usable, InputError, "PL0703",
                  "the output folder '{}' cannot be written: '{}' is in the way, expected {}\n"
                  "HINT: move it away, or set run.output to another folder.",
                  path_, place, expected);
  };
  for (const std::string& file : {lock(), deck(), log(), metrics()}) {
    for (const char* end : {"", ".tmp"}) {
      require(!fs::is_directory(file + end, error), file + end, "a file or nothing");
    }
  }
  for (const std::string& folder : {checkpoints(), gradients()}) {
    const bool there = fs::exists(fs::symlink_status(folder, error));
    require(!there || fs::is_directory(folder, error), folder, "a folder or nothing");
  }
}

void RunFolder::set_aside_earlier_run(Log& log) const {
  for (const std::string& old : {metrics(), checkpoints(), gradients(), this->log()}) {
    if (!io::is_there(old)) continue;
    log.warn("an earlier run's '{}' is kept as '{}'", old, io::set_aside(old));
  }
}

void RunFolder::make_folders(bool with_gradients) const {
  make_writable_folder(checkpoints());
  if (with_gradients) make_writable_folder(gradients());
}

void RunFolder::write_deck(const std::string& resolved_deck) const {
  io::write_durably(deck(), resolved_deck);
}

namespace {

/// M of "step M/600  loss ..." and "step      M  validation loss ..."; nothing for other
/// lines. Of a line that was cut off within the number nobody knows which it was: the
/// largest, so that it goes.
std::optional<std::int64_t> step_of_line(std::string_view line) {
  constexpr std::string_view kStart = "step ";
  if (!line.starts_with(kStart)) return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of(' ', kStart.size()), line.size()));
  std::int64_t step = 0;
  const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  if (error != std::errc()) return std::nullopt;
  if (stop == line.data() + line.size()) return std::numeric_limits<std::int64_t>::max();
  return *stop == '/' || *stop == ' ' ? std::optional(step) : std::nullopt;
}

}  // namespace

void trim_log(const std::string& path, std::int64_t step) {
  std::ifstream log(path, std::ios::binary);
  if (!log) return;
  const std::string temporary = path + ".tmp";
  std::ofstream kept(temporary, std::ios::binary | std::ios::trunc);
  bool same = true;
  for (std::string line; std::getline(log, line);) {
    const bool later = step_of_line(line).value_or(0) > step;
    same = same && !later && !log.eof();  // eof: the last line has no end
    if (!later) kept << line << '\n';
  }
  kept.close();
  PLEAT_REQUIRE(kept && !log.bad(), IoError, "PL0310",
                "cannot write '{}': {}\nHINT: check free space and quota.", temporary,
                std::strerror(errno));
  if (same) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
  } else {
    io::rename_durably(temporary, path);
  }
}

}  // namespace pleat::train
