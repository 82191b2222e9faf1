// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/failure.hpp"

#include <cstdio>
#include <new>

namespace pleat {
namespace {

/// \param detail  ": ..." or nothing
Failure out_of_memory(const std::string& detail) {
  std::string text = kOutOfMemory;
  text.insert(text.find('\n'), detail);
  return {ExitCode::kInternal, text};
}

/// Kokkos tells of a failed allocation in a plain std::runtime_error.
bool tells_of_memory(const std::string& text) {
  return text.find("memory space failed to allocate") != std::string::npos;
}

}  // namespace

IoError unwritable_output() {
  return {"PL0106",
          "standard output cannot be written to the end\n"
          "HINT: the disk or quota that it goes to is probably full."};
}

Failure describe_failure(const std::exception_ptr& exception) {
  try {
    if (exception) std::rethrow_exception(exception);
    return {ExitCode::kInternal, "PL0103: the program was terminated by itself"};
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  } catch (const std::bad_alloc&) {
    return out_of_memory("");
  } catch (const std::exception& error) {
    const std::string text = error.what();
    if (tells_of_memory(text)) return out_of_memory(": " + text);
    if (std::ferror(stdout) != 0) return {ExitCode::kInputOutput, unwritable_output().what()};
    return {ExitCode::kInternal, "PL0103: unexpected failure: " + text};
  } catch (...) {
    return {ExitCode::kInternal, "PL0103: unexpected failure without a text"};
  }
}

}  // namespace pleat
