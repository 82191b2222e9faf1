// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What is at a path, for paths that users name.
///
/// std::filesystem throws where it may not look, with a text that names a function of its own;
/// where it is told not to throw, what may not be looked at seems not to be there. Here nothing
/// is "not there" but what is not, and everything else is one message.

#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

namespace pleat::io {

/// \brief Links are followed. \throws InputError PL0110 where the system does not tell
bool is_there(const std::string& path);
bool is_folder(const std::string& path);
bool is_plain_file(const std::string& path);  ///< nor a device, a pipe, ...
/// \brief A symbolic link, wherever it leads. \throws InputError PL0110
bool is_link(const std::string& path);

/// \brief What a folder holds, in no order; nothing where it is not there.
/// \throws InputError PL0110
std::vector<std::string> names_in_folder(const std::string& path);

/// \brief Bytes of a file that is in use. \throws IoError PL0310
std::int64_t size_of_file(const std::string& path);

/// \brief Makes a folder and those that it is in, where they are missing.
/// \throws IoError PL0310
void make_folders(const std::string& path);

/// \throws InputError PL0110 with the system's reason
[[noreturn]] void fail_to_look_at(const std::string& path, std::error_code reason);

}  // namespace pleat::io
