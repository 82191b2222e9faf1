// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Writing into an existing file at given places, without MPI.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "pleat/io/file_descriptor.hpp"

namespace pleat::io {

class PlainWriter {
 public:
  /// \throws IoError PL0303
  explicit PlainWriter(std::string path);

  /// \throws IoError PL0303
  void write_at(std::int64_t offset, std::span<const std::byte> bytes);
  /// \brief Waits until the disk has it. \throws IoError PL0303
  void sync();

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  FileDescriptor file_;
};

}  // namespace pleat::io
