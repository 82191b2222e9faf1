// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/environment.hpp"

#include <cstdlib>
#include <string_view>

#include "pleat/base/error.hpp"

namespace pleat {

bool is_wished(const char* variable, const char* value) {
  const char* const text = std::getenv(variable);
  const std::string_view wish = text == nullptr ? "" : text;
  if (wish.empty() || wish == value) return !wish.empty();
  PLEAT_FAIL(InputError, "PL0108",
             "the environment's {} is '{}', expected '{}' or nothing\n"
             "HINT: docs/gpu.md says what it is for; 'unset {}' takes it away.",
             variable, wish, value, variable);
}

}  // namespace pleat
