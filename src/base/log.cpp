// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/log.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

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
  path_ = path;
}

void Log::sync() {
  if (file_ == nullptr || fsync(fileno(file_)) == 0) return;
  // A pipe or terminal in place of a file has nothing to wait for.
  if (errno != EINVAL && errno != EROFS) fail_file();
}

void Log::fail_file() {
  const int reason = errno;
  // What reports the failure may log in turn.
  std::fclose(std::exchange(file_, nullptr));
  PLEAT_FAIL(IoError, "PL0104",
             "cannot write the log file '{}': {}\nHINT: is the disk full? The last "
             "checkpoint is intact; the same command goes on from there.",
             path_, std::strerror(reason));
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
    const bool written =
        std::fprintf(file_, "%s\n", line.c_str()) >= 0 && std::fflush(file_) == 0;
    if (!written) fail_file();
  }
}

}  // namespace pleat
