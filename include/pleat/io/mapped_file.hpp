// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A file seen as bytes in memory, read only.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pleat::io {

/// \brief Maps a whole file; unmapped when destroyed.
class MappedFile {
 public:
  /// \throws InputError PL0501 when missing, not a plain file or not readable
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::int64_t size() const { return static_cast<std::int64_t>(size_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace pleat::io
