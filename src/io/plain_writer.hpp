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
  /// \brief Lets the disk begin with what was written there. Only a hint.
  void begin_write_back(std::int64_t offset, std::int64_t bytes);
  /// \brief Waits until the disk has it. \throws IoError PL0303
  void sync();

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  FileDescriptor file_;
};

}  // namespace pleat::io
