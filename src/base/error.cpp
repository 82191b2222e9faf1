// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/error.hpp"

namespace pleat::detail {

void assertion_failed(const char* expression, const char* file, int line,
                      const std::string& message) {
  throw InternalError("PL0100",
                      fmt::format("assertion '{}' failed at {}:{}: {}\nHINT: this is a fault of "
                                  "the program; please report it with the deck and the log.",
                                  expression, file, line, message));
}

}  // namespace pleat::detail
