// SPDX-License-Identifier: Apache-2.0
#include "plain_writer.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "pleat/base/error.hpp"

namespace pleat::io {

PlainWriter::PlainWriter(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC)) {
  if (file_.get() < 0) fail();
}

void PlainWriter::fail() const {
  PLEAT_FAIL(IoError, "PL0303",
             "{}: cannot write the file ({})\n"
             "HINT: check free space, quota and permissions of the folder.",
             path_, std::strerror(errno));
}

void PlainWriter::write_at(std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    offset += written;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void PlainWriter::begin_write_back(std::int64_t offset, std::int64_t bytes) {
#ifdef SYNC_FILE_RANGE_WRITE
  ::sync_file_range(file_.get(), offset, bytes, SYNC_FILE_RANGE_WRITE);
#endif
}

void PlainWriter::sync() {
  if (::fsync(file_.get()) != 0) fail();
}

}  // namespace pleat::io
