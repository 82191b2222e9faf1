// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Where tests find what they use. On another machine than the one that built them
/// (scripts/gpu_bundle) the environment says so.

#include <cstdlib>
#include <string>

namespace pleat::test {

/// \brief The folder tests/; PLEAT_TESTS_FOLDER in the environment names another one.
inline std::string tests_folder() {
  const char* const elsewhere = std::getenv("PLEAT_TESTS_FOLDER");
  return elsewhere != nullptr ? elsewhere : PLEAT_TESTS_DIR;
}

#ifdef PLEAT_PROGRAM
/// \brief The program; PLEAT_TESTED_PROGRAM in the environment names another one.
inline std::string program() {
  const char* const elsewhere = std::getenv("PLEAT_TESTED_PROGRAM");
  return elsewhere != nullptr ? elsewhere : PLEAT_PROGRAM;
}
#endif

}  // namespace pleat::test
