// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Reading and writing an existing file at given places, without MPI.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "pleat/io/file_descriptor.hpp"

namespace pleat::io {

/// \brief Throws InputErrors (PL0302) where the file is to be read, IoErrors (PL0303)
/// where it is to be written. May be used by several threads.
class PlainFile {
 public:
  enum class Access { kRead, kWrite };

  PlainFile(std::string path, Access access);

  Access access() const { return access_; }
  void read_at(std::int64_t offset, std::span<std::byte> bytes) const;
  void write_at(std::int64_t offset, std::span<const std::byte> bytes) const;
  /// \brief Lets the disk begin with what was written there. Only a hint.
  void begin_write_back(std::int64_t offset, std::int64_t bytes) const;
  /// \brief Waits until the disk has it.
  void sync() const;

 private:
  [[noreturn]] void fail(const char* reason) const;
  [[noreturn]] void fail() const;

  std::string path_;
  Access access_;
  FileDescriptor file_;
};

}  // namespace pleat::io
