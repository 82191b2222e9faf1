// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Errors that say what happened, where, what was expected and what to do.
///
/// Every user-visible failure has an identifier ("PL0203") that docs/errors.md explains, and
/// belongs to one kind, which fixes the exit code of the program. Message texts end with a
/// line "HINT: ..." where there is something that the user can do.

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace pleat {

/// \brief What the process returns to the shell or the batch system.
enum class ExitCode : int {
  kDone = 0,
  kInternal = 1,        ///< a fault of the program itself
  kBadInput = 2,        ///< deck, command line, data or model files
  kNumerical = 3,       ///< NaN or Inf, with step, layer and rank
  kInputOutput = 4,     ///< the file system failed
  kStoppedEarly = 75,   ///< checkpoint written, resubmit
};

/// \brief Base of all exceptions of the program.
class Error : public std::runtime_error {
 public:
  Error(ExitCode exit_code, std::string_view id, const std::string& message)
      : std::runtime_error(fmt::format("{}: {}", id, message)),
        exit_code_(exit_code),
        id_(id) {}
  ExitCode exit_code() const { return exit_code_; }
  const std::string& id() const { return id_; }

 private:
  ExitCode exit_code_;
  std::string id_;
};

struct InputError : Error {
  InputError(std::string_view id, const std::string& message)
      : Error(ExitCode::kBadInput, id, message) {}
};
struct NumericalError : Error {
  NumericalError(std::string_view id, const std::string& message)
      : Error(ExitCode::kNumerical, id, message) {}
};
struct IoError : Error {
  IoError(std::string_view id, const std::string& message)
      : Error(ExitCode::kInputOutput, id, message) {}
};
struct InternalError : Error {
  InternalError(std::string_view id, const std::string& message)
      : Error(ExitCode::kInternal, id, message) {}
};

namespace detail {
/// Throws an InternalError that names the failed assertion and its place.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line,
                                   const std::string& message);
}  // namespace detail

}  // namespace pleat

/// \brief Throws Kind(id, formatted message): `PLEAT_FAIL(InputError, "PL0203", "...{}", x)`.
#define PLEAT_FAIL(Kind, id, ...) throw ::pleat::Kind((id), ::fmt::format(__VA_ARGS__))

/// \brief The user's part: checks what comes from outside, in every build.
#define PLEAT_REQUIRE(condition, Kind, id, ...)            \
  do {                                                     \
    if (!(condition)) PLEAT_FAIL(Kind, (id), __VA_ARGS__); \
  } while (false)

/// \brief The programmer's part: checks what the program itself must guarantee, in every
/// build; stays outside inner loops.
#define PLEAT_ASSERT(condition, ...)                                          \
  do {                                                                        \
    if (!(condition))                                                         \
      ::pleat::detail::assertion_failed(#condition, __FILE__, __LINE__,       \
                                        ::fmt::format(__VA_ARGS__));          \
  } while (false)
