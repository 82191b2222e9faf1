// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/places.hpp"

#include <filesystem>

#include "deck_tree.hpp"
#include "pleat/base/error.hpp"

namespace pleat::io {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostShown = 400;  // bytes of a name, which may be too long

/// "" is no path; "file/x" is not there.
bool tells_of_nothing(std::error_code reason) {
  return reason == std::errc::no_such_file_or_directory ||
         reason == std::errc::not_a_directory;
}

fs::file_type type_of(const std::string& path) {
  std::error_code reason;
  const fs::file_status status = fs::status(path, reason);
  if (status.type() == fs::file_type::none) fail_to_look_at(path, reason);
  return status.type();
}

}  // namespace

void fail_to_look_at(const std::string& path, std::error_code reason) {
  const bool forbidden = reason == std::errc::permission_denied ||
                         reason == std::errc::operation_not_permitted;
  const char* hint =
      forbidden ? "\nHINT: check the permissions of the folders that lead there, or take "
                  "another path."
                : "";
  PLEAT_FAIL(InputError, "PL0110", "cannot look at '{}': {}{}", printable(path, kMostShown),
             reason.message(), hint);
}

bool is_there(const std::string& path) { return type_of(path) != fs::file_type::not_found; }

bool is_folder(const std::string& path) {
  return type_of(path) == fs::file_type::directory;
}

bool is_plain_file(const std::string& path) {
  return type_of(path) == fs::file_type::regular;
}

bool is_link(const std::string& path) {
  std::error_code reason;
  const fs::file_status status = fs::symlink_status(path, reason);
  if (status.type() == fs::file_type::none) fail_to_look_at(path, reason);
  return status.type() == fs::file_type::symlink;
}

std::vector<std::string> names_in_folder(const std::string& path) {
  std::vector<std::string> names;
  std::error_code reason;
  fs::directory_iterator entry(path, reason);
  while (!reason && entry != fs::directory_iterator()) {
    names.push_back(entry->path().filename().string());
    entry.increment(reason);
  }
  if (reason && !tells_of_nothing(reason)) fail_to_look_at(path, reason);
  return names;
}

std::int64_t size_of_file(const std::string& path) {
  std::error_code reason;
  const std::uintmax_t bytes = fs::file_size(path, reason);
  PLEAT_REQUIRE(!reason, IoError, "PL0310", "cannot find the size of '{}': {}", path,
                reason.message());
  return static_cast<std::int64_t>(bytes);
}

void make_folders(const std::string& path) {
  std::error_code reason;
  fs::create_directories(path, reason);
  PLEAT_REQUIRE(!reason, IoError, "PL0310", "cannot make the folder '{}': {}", path,
                reason.message());
}

}  // namespace pleat::io
