// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief An open file of the operating system.

#include <utility>

#include <unistd.h>

namespace pleat::io {

/// \brief Owns a descriptor and closes it; negative where opening failed.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  ~FileDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

}  // namespace pleat::io
