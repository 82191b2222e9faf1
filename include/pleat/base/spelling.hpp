// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Helps a person who mistyped a name.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace pleat {

/// \brief Insertions, deletions, replacements and swaps of neighbours that turn one word into
/// the other (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// \brief The candidate that is spelt most like the word; the first of equals; empty when
/// there are no candidates or none is similar.
std::string nearest_spelling(std::string_view word, std::span<const std::string> candidates);

}  // namespace pleat
