// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Files that are either there in full or not at all, whenever the machine stops.

#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace pleat::io {

/// \brief The folder part of a path, "." where there is none.
std::string folder_of(const std::string& path);
/// \brief Whether the folder part of a path is that folder, by whatever names.
bool is_in_folder(const std::string& path, const std::string& folder);

/// \brief Why no file can be made in a folder; no error where one can. It tries: permission
/// bits alone do not tell of a read-only or full file system.
std::error_code why_not_writable(const std::string& folder);

/// \brief Waits until the file or folder is on the disk. \throws IoError PL0310
void sync_path(const std::string& path);

/// \brief Syncs `from`, renames it to `to` (replacing that) and syncs the folder.
/// \throws IoError PL0310
void rename_durably(const std::string& from, const std::string& to);

/// \brief Renames to `PATH.old-1`, or the next number that is free. \return the new name
/// \throws IoError PL0310
std::string set_aside(const std::string& path);

/// \brief Writes `PATH.tmp`, then renames it. \throws IoError PL0310
void write_durably(const std::string& path, std::string_view text);

/// \brief Makes the file of so many bytes, or grows it, and takes the disk space of the first
/// `claimed` of them at once, where the file system can do that. \throws IoError PL0310
void claim_space(const std::string& path, std::int64_t bytes, std::int64_t claimed);

/// \brief A whole small file. \throws InputError PL0401 unreadable or larger than the
/// limit
std::string read_small_file(const std::string& path, std::int64_t limit = 16 << 20);

}  // namespace pleat::io
