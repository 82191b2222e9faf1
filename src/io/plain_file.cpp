// SPDX-License-Identifier: Apache-2.0
#include "plain_file.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "pleat/base/error.hpp"

namespace pleat::io {

PlainFile::PlainFile(std::string path, Access access)
    : path_(std::move(path)),
      access_(access),
      file_(::open(path_.c_str(),
                   (access == Access::kRead ? O_RDONLY : O_RDWR) | O_CLOEXEC)) {
  if (file_.get() < 0) fail();
}

void PlainFile::fail() const { fail(std::strerror(errno)); }

void PlainFile::fail(const char* reason) const {
  if (access_ == Access::kRead) {
    PLEAT_FAIL(InputError, "PL0302", "{}: cannot read the values ({})", path_, reason);
  }
  PLEAT_FAIL(IoError, "PL0303",
             "{}: cannot write the file ({})\n"
             "HINT: check free space, quota and permissions of the folder.",
             path_, reason);
}

void PlainFile::read_at(std::int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t moved = ::pread(file_.get(), bytes.data(), bytes.size(), offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) fail();
    if (moved == 0) fail("the file is cut off");
    offset += moved;
    bytes = bytes.subspan(static_cast<std::size_t>(moved));
  }
}

void PlainFile::write_at(std::int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t moved = ::pwrite(file_.get(), bytes.data(), bytes.size(), offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) fail();
    offset += moved;
    bytes = bytes.subspan(static_cast<std::size_t>(moved));
  }
}

void PlainFile::begin_write_back(std::int64_t offset, std::int64_t bytes) const {
#ifdef SYNC_FILE_RANGE_WRITE
  ::sync_file_range(file_.get(), offset, bytes, SYNC_FILE_RANGE_WRITE);
#endif
}

void PlainFile::sync() const {
  if (::fsync(file_.get()) != 0) fail();
}

}  // namespace pleat::io
