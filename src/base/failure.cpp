// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/failure.hpp"

#include <new>

namespace pleat {
namespace {

Failure out_of_memory(const std::string& detail) {
  return {ExitCode::kInternal,
          "PL0102: out of memory" + detail +
              "\nHINT: 'pleat check DECK' estimates the need; smaller batch.micro or "
              "precision.recompute = \"full\" lower it."};
}

/// Kokkos tells of a failed allocation in a plain std::runtime_error.
bool tells_of_memory(const std::string& text) {
  return text.find("memory space failed to allocate") != std::string::npos;
}

}  // namespace

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
    return {ExitCode::kInternal, "PL0103: unexpected failure: " + text};
  } catch (...) {
    return {ExitCode::kInternal, "PL0103: unexpected failure without a text"};
  }
}

}  // namespace pleat
