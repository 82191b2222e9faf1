// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace pleat::test {

inline int count(const std::string& text, const std::string& phrase) {
  int found = 0;
  for (std::size_t at = text.find(phrase); at != std::string::npos;
       at = text.find(phrase, at + phrase.size())) {
    ++found;
  }
  return found;
}

/// \brief How often a job told what ended it.
inline int messages_in(const std::string& output) { return count(output, "pleat: "); }

}  // namespace pleat::test
