// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Lines for the person who watches the run.

#include <cstdio>
#include <string>

#include <fmt/format.h>

namespace pleat {

/// \brief Writes lines to a stream and, once opened, to the log file of the run; silent on
/// all ranks but one. Passed explicitly, never global.
class Log {
 public:
  /// \param speaks  true on the rank whose lines are shown
  explicit Log(bool speaks = true, std::FILE* stream = stdout)
      : speaks_(speaks), stream_(stream) {}
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// \brief Also appends every line to the file, each handed to the system at once: a killed
  /// process loses none. \throws IoError PL0101
  void open_file(const std::string& path);
  /// \brief Waits until the file is on the disk: for a moment behind which nothing may be
  /// missing even when the machine fails. \throws IoError PL0104
  void sync();

  /// info and warn: \throws IoError PL0104 the file cannot be written, once

  template <class... Args>
  void info(fmt::format_string<Args...> text, Args&&... args) {
    if (speaks_) write(fmt::format(text, std::forward<Args>(args)...), true);
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> text, Args&&... args) {
    if (speaks_) write("WARNING: " + fmt::format(text, std::forward<Args>(args)...), true);
  }
  /// \brief A line that replaces itself on a terminal (progress); never goes to the file.
  void progress(const std::string& line);
  bool speaks() const { return speaks_; }
  /// \brief True when the stream is a terminal.
  bool interactive() const;

 private:
  void write(const std::string& line, bool to_file);
  [[noreturn]] void fail_file();

  bool speaks_;
  std::FILE* stream_;
  std::FILE* file_ = nullptr;
  std::string path_;
  bool progress_shown_ = false;
};

}  // namespace pleat
