// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/durable_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <unistd.h>

#include "pleat/base/error.hpp"
#include "pleat/io/file_descriptor.hpp"
#include "pleat/io/places.hpp"

namespace pleat::io {

std::string folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

bool is_in_folder(const std::string& path, const std::string& folder) {
  std::error_code error;
  return std::filesystem::equivalent(folder_of(path), folder, error);
}

std::error_code why_not_writable(const std::string& folder) {
  const std::string probe = folder + "/.write-probe." + std::to_string(getpid());
  std::ofstream file(probe);
  file << "pleat\n";
  file.close();
  const std::error_code reason(file ? 0 : errno, std::generic_category());
  std::error_code ignored;
  std::filesystem::remove(probe, ignored);
  return reason;
}

void sync_path(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // Some file systems cannot sync a folder (EINVAL); then there is nothing to wait for.
  const bool synced = file.get() >= 0 && (fsync(file.get()) == 0 || errno == EINVAL);
  PLEAT_REQUIRE(synced, IoError, "PL0310",
                "cannot bring '{}' to the disk: {}\nHINT: check free space and quota.",
                path, std::strerror(errno));
}

void rename_durably(const std::string& from, const std::string& to) {
  sync_path(from);
  PLEAT_REQUIRE(std::rename(from.c_str(), to.c_str()) == 0, IoError, "PL0310",
                "cannot rename '{}' to '{}': {}", from, to, std::strerror(errno));
  sync_path(folder_of(to));
}

std::string set_aside(const std::string& path) {
  std::string kept;
  for (int number = 1; kept.empty() || is_there(kept); ++number) {
    kept = path + ".old-" + std::to_string(number);
  }
  PLEAT_REQUIRE(std::rename(path.c_str(), kept.c_str()) == 0, IoError, "PL0310",
                "cannot rename '{}' to '{}': {}", path, kept, std::strerror(errno));
  sync_path(folder_of(path));
  return kept;
}

void write_durably(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    file.flush();
    PLEAT_REQUIRE(file.good(), IoError, "PL0310", "cannot write '{}': {}", temporary,
                  std::strerror(errno));
  }
  rename_durably(temporary, path);
}

void claim_space(const std::string& path, std::int64_t bytes, std::int64_t claimed) {
  const FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  PLEAT_REQUIRE(file.get() >= 0, IoError, "PL0310", "cannot create '{}': {}", path,
                std::strerror(errno));
  const bool grown = ftruncate(file.get(), bytes) == 0;
  const bool taken = grown && (claimed == 0 || fallocate(file.get(), 0, 0, claimed) == 0);
  const bool cannot_tell = grown && (errno == EOPNOTSUPP || errno == ENOSYS);
  PLEAT_REQUIRE(
      taken || cannot_tell, IoError, "PL0310",
      "there is no room for the {:.1f} MB of '{}': {}\nHINT: check free space and "
      "quota.",
      static_cast<double>(bytes) * 1e-6, path, std::strerror(errno));
}

std::string read_small_file(const std::string& path, std::int64_t limit) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  PLEAT_REQUIRE(!error, InputError, "PL0401", "cannot read '{}': {}", path,
                error.message());
  PLEAT_REQUIRE(bytes <= static_cast<std::uintmax_t>(limit), InputError, "PL0401",
                "'{}' has {} bytes, more than the {} that such a file may have", path,
                bytes, limit);
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  PLEAT_REQUIRE(file.good(), InputError, "PL0401", "cannot read '{}': {}", path,
                std::strerror(errno));
  return text;
}

}  // namespace pleat::io
