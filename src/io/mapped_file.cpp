// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/mapped_file.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "pleat/base/error.hpp"
#include "pleat/io/file_descriptor.hpp"

namespace pleat::io {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // Not blocking, so that a pipe is refused and not waited for.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  PLEAT_REQUIRE(
      file.get() >= 0, InputError, "PL0501",
      "cannot open '{}': {}{}", path, std::strerror(errno),
      errno == ENOENT
          ? "\nHINT: the path is relative to the deck's folder or the working directory."
          : "");
  struct stat status {};
  PLEAT_REQUIRE(::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode), InputError,
                "PL0501", "'{}' is not a plain file", path);
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // an empty mapping is not allowed
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  PLEAT_REQUIRE(address != MAP_FAILED, InputError, "PL0501", "cannot map '{}': {}", path,
                std::strerror(errno));
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

}  // namespace pleat::io
