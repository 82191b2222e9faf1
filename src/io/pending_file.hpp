// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "pleat/io/durable_file.hpp"

namespace pleat::io {

/// \brief A file that is written under a temporary name and appears under its own only
/// when complete; what was not committed is removed.
class PendingFile {
 public:
  explicit PendingFile(std::string path)
      : path_(std::move(path)), temporary_(path_ + ".tmp") {}
  ~PendingFile() {
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  const std::string& path() const { return path_; }
  /// \brief Where to write.
  const std::string& temporary() const { return temporary_; }
  /// \throws IoError PL0310
  void commit() const { rename_durably(temporary_, path_); }

 private:
  std::string path_;
  std::string temporary_;
};

}  // namespace pleat::io
