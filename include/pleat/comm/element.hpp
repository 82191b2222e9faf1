// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What a collective moves and how it combines.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "pleat/base/bf16.hpp"

namespace pleat::comm {

enum class Reduction { kSum, kMax };
enum class Element { kByte, kInt32, kInt64, kBf16, kFloat, kDouble };

std::size_t bytes_of(Element element);

/// \brief The element type of a collective.
template <class T>
constexpr Element element_of() {
  if constexpr (std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::byte>) {
    return Element::kByte;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return Element::kInt32;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return Element::kInt64;
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return Element::kBf16;
  } else if constexpr (std::is_same_v<T, float>) {
    return Element::kFloat;
  } else {
    static_assert(std::is_same_v<T, double>, "no collective for this element type");
    return Element::kDouble;
  }
}

}  // namespace pleat::comm
