// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief JSON from files of others: strict, and safe against hostile input.

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace pleat::io {

/// \brief Parses a text whose top is an object; refuses duplicate keys and nesting deeper
/// than `depth`.
/// \param place  file name, for messages
/// \throws InputError PL0401 with place and reason
nlohmann::json parse_json(std::string_view text, const std::string& place,
                          std::size_t depth = 16);

}  // namespace pleat::io
