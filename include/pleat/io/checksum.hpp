// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A checksum of a tensor that does not depend on who holds which part of it.
///
/// With i the row-major index of an element in the *global* shape and b its bit pattern,
/// zero-extended to 64 bits, all arithmetic modulo 2^64:
///
///     mix(x):  x ^= x >> 30;  x *= 0xbf58476d1ce4e5b9;
///              x ^= x >> 27;  x *= 0x94d049bb133111eb;  x ^= x >> 31
///     checksum = sum over i of mix(b_i + mix((i + 1) * 0x9e3779b97f4a7c15))
///
/// `mix` (the finalizer of SplitMix64) is a bijection, so a change that is confined to
/// one element always changes the sum; any other escapes with probability 2^-64. Parts
/// computed by different ranks are simply added.

#include <cstddef>
#include <cstdint>
#include <span>

#include "pleat/io/element_type.hpp"
#include "pleat/tensor/parameter_layout.hpp"

namespace pleat::io {

constexpr std::uint64_t checksum_mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// \brief The term of one element.
constexpr std::uint64_t checksum_term(std::uint64_t index, std::uint64_t bits) {
  return checksum_mix(bits + checksum_mix((index + 1) * 0x9e3779b97f4a7c15ULL));
}

/// \brief Checksum of consecutive elements, the first of which has the given global
/// index. \tparam T  float or double
template <class T>
std::uint64_t content_checksum(std::span<const T> values, std::uint64_t first_index = 0);

/// \brief The same over elements as they lie in a file.
std::uint64_t content_checksum(ElementType type, std::span<const std::byte> bytes,
                               std::uint64_t first_index = 0);

/// \brief Checksum of a box inside a global shape.
/// \param bytes  the elements of the box, row-major in box_shape
std::uint64_t box_checksum(ElementType type, std::span<const std::byte> bytes,
                           const tensor::Shape& global_shape,
                           const tensor::Shape& box_offset,
                           const tensor::Shape& box_shape);

}  // namespace pleat::io
