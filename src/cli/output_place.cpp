// SPDX-License-Identifier: Apache-2.0
#include "output_place.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <sys/stat.h>

#include "pleat/base/error.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/io/places.hpp"

namespace pleat::cli {

namespace fs = std::filesystem;

namespace {

void require_writable_parent(const std::string& path) {
  const std::string parent = io::folder_of(path);
  std::error_code ignored;
  PLEAT_REQUIRE(fs::is_directory(parent, ignored), InputError, "PL0921",
                "cannot write '{}': there is no folder '{}'", path, parent);
  const std::error_code reason = io::why_not_writable(parent);
  PLEAT_REQUIRE(!reason, InputError, "PL0921",
                "cannot write '{}': the folder '{}' is not writable: {}", path, parent,
                reason.message());
}

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

bool is_model_file(const std::string& name) {
  return name == "config.json" || name == "model.safetensors.index.json" ||
         (name.starts_with("model") && name.ends_with(".safetensors"));
}

void require_free_file(const std::string& path, bool force) {
  PLEAT_REQUIRE(!io::is_folder(path), InputError, "PL0920",
                "'{}' is a folder, expected the name of a file", path);
  PLEAT_REQUIRE(force || !io::is_there(path), InputError, "PL0920",
                "'{}' exists\nHINT: --force overwrites it.", path);
  // A new file takes the place of the old one, also where that is a device or a pipe.
  const bool replaceable = io::is_plain_file(path) && !io::is_link(path);
  PLEAT_REQUIRE(replaceable || !io::is_there(path), InputError, "PL0920",
                "'{}' is no plain file, expected the name of one", path);
  require_writable_parent(path);
}

OutputFolder::OutputFolder(std::string path, bool force)
    : path_(without_trailing_slashes(std::move(path))) {
  PLEAT_REQUIRE(!io::is_there(path_) || io::is_folder(path_), InputError, "PL0920",
                "'{}' is a file, expected the name of a folder", path_);
  PLEAT_REQUIRE(
      force || io::names_in_folder(path_).empty(), InputError, "PL0920",
      "'{}' exists and is not empty\nHINT: --force replaces the model files in it.",
      path_);
  require_writable_parent(path_);
  work_ = path_ + ".tmp-XXXXXX";
  PLEAT_REQUIRE(mkdtemp(work_.data()) != nullptr, InputError, "PL0921",
                "cannot make a folder beside '{}': {}", path_, std::strerror(errno));
  // mkdtemp makes private folders; this one gets the mode that any new folder would have.
  const mode_t mask = umask(0);
  umask(mask);
  chmod(work_.c_str(), 0777 & ~mask);
}

OutputFolder::~OutputFolder() {
  if (work_.empty()) return;
  std::error_code ignored;
  fs::remove_all(work_, ignored);
}

void OutputFolder::replace_model_files() const {
  for (const std::string& name : io::names_in_folder(path_)) {
    if (is_model_file(name)) fs::remove(fs::path(path_) / name);
  }
  for (const std::string& name : io::names_in_folder(work_)) {
    fs::rename(fs::path(work_) / name, fs::path(path_) / name);
  }
  fs::remove(work_);
}

void OutputFolder::commit() {
  try {
    if (!io::names_in_folder(path_).empty()) {
      replace_model_files();
    } else {
      fs::rename(work_, path_);  // also over an empty folder
    }
  } catch (const fs::filesystem_error& error) {
    PLEAT_FAIL(IoError, "PL0922", "cannot move the finished files to '{}': {}", path_,
               error.code().message());
  }
  work_.clear();
  io::sync_path(io::folder_of(path_));
}

}  // namespace pleat::cli
