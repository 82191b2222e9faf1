// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Types as decks and reports name them.

#include <type_traits>

#include "pleat/base/bf16.hpp"

namespace pleat::bench {

/// \brief "fp64", "fp32", "bf16"; "int" for integers.
template <class T>
constexpr const char* precision_name() {
  if constexpr (std::is_same_v<T, double>) {
    return "fp64";
  } else if constexpr (std::is_same_v<T, float>) {
    return "fp32";
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return "bf16";
  } else {
    static_assert(std::is_integral_v<T>);
    return "int";
  }
}

}  // namespace pleat::bench
