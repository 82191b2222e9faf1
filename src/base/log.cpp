// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/log.hpp"

#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "pleat/base/error.hpp"

namespace pleat {

Log::~Log() {
  if (progress_shown_) std::fputc('\n', stream_);
  if (file_ != nullptr) std::fclose(file_);
}

void Log::open_file(const std::string& path) {
  if (!speaks_) return;
  file_ = std::fopen(path.c_str(), "a");
  PLEAT_REQUIRE(file_ != nullptr, IoError, "PL0101",
                "cannot open the log file '{}': {}\nHINT: check the permissions of the output "
                "folder (run.output).",
                path, std::strerror(errno));
}

bool Log::interactive() const { return isatty(fileno(stream_)) != 0; }

void Log::progress(const std::string& line) {
  if (!speaks_) return;
  std::fprintf(stream_, "\r\033[K%s", line.c_str());
  std::fflush(stream_);
  progress_shown_ = true;
}

void Log::write(const std::string& line, bool to_file) {
  if (progress_shown_) std::fputs("\r\033[K", stream_);
  progress_shown_ = false;
  std::fprintf(stream_, "%s\n", line.c_str());
  std::fflush(stream_);
  if (to_file && file_ != nullptr) {
    std::fprintf(file_, "%s\n", line.c_str());
    std::fflush(file_);
  }
}

}  // namespace pleat
