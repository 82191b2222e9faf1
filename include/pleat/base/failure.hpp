// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the user gets to see of an exception.

#include <exception>
#include <string>

#include "pleat/base/error.hpp"

namespace pleat {

struct Failure {
  ExitCode exit_code = ExitCode::kInternal;
  std::string message;  ///< "PL0102: out of memory ..."
};

/// \brief What PL0102 says; a literal, so that it can be told without any memory.
inline constexpr char kOutOfMemory[] =
    "PL0102: out of memory\n"
    "HINT: 'pleat check DECK' estimates the need; smaller batch.micro or "
    "precision.recompute = \"full\" lower it.";

/// \brief PL0106: what was printed is not all there.
IoError unwritable_output();

/// \brief Identifier, text and exit code of any exception: PL0102 where memory is
/// exhausted, PL0106 where standard output has failed, PL0103 for what is no Error.
/// \throws std::bad_alloc where there is no memory for the text
Failure describe_failure(const std::exception_ptr& exception);

}  // namespace pleat
