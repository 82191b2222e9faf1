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

/// \brief Identifier, text and exit code of any exception: PL0102 where memory is
/// exhausted, PL0103 for what is no Error.
Failure describe_failure(const std::exception_ptr& exception);

}  // namespace pleat
