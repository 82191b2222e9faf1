// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A 16-bit number format: the upper half of an fp32 number.

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <Kokkos_Core.hpp>

namespace pleat {

/// \brief bfloat16, a format for storage: arithmetic happens in fp32, to which values convert
/// by themselves. Back to 16 bits is a rounding, hence explicit: to nearest, ties to even;
/// NaN stays NaN, what exceeds the largest number becomes infinite. Not
/// Kokkos::Experimental::bhalf_t, which is fp32 on hosts.
struct Bf16 {
  std::uint16_t bits;

  /// \brief Half a unit in the last place of 1: the largest relative error of a rounding.
  static constexpr double kRoundoff = 0x1p-8;

  Bf16() = default;
  /// \brief Rounds; what is wider than fp32 goes through it.
  template <class Number>
    requires std::is_arithmetic_v<Number>
  KOKKOS_FORCEINLINE_FUNCTION explicit Bf16(Number value)
      : bits(rounded(static_cast<float>(value))) {}

  // For fp32 alone: an operator that also led to int would truncate silently.
  template <class Number>
    requires std::same_as<Number, float>
  KOKKOS_FORCEINLINE_FUNCTION operator Number() const {
    return Kokkos::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  KOKKOS_FORCEINLINE_FUNCTION explicit operator double() const {
    return static_cast<double>(static_cast<float>(*this));
  }

  /// \brief The sum in fp32, rounded.
  KOKKOS_FORCEINLINE_FUNCTION Bf16& operator+=(float value) {
    bits = rounded(static_cast<float>(*this) + value);
    return *this;
  }

  KOKKOS_FORCEINLINE_FUNCTION friend bool operator==(Bf16 a, Bf16 b) {
    return static_cast<float>(a) == static_cast<float>(b);
  }

  /// \brief The number of these bits.
  KOKKOS_FORCEINLINE_FUNCTION static Bf16 from_bits(std::uint16_t bits) {
    Bf16 result;
    result.bits = bits;
    return result;
  }

 private:
  // Without branches, so that loops over rows become vector code.
  KOKKOS_FORCEINLINE_FUNCTION static std::uint16_t rounded(float value) {
    const auto wide = Kokkos::bit_cast<std::uint32_t>(value);
    // A carry out of the lower half rounds up: always above its middle, at the middle where
    // the upper half is odd.
    const std::uint32_t nearest = (wide + 0x7FFFU + ((wide >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (wide >> 16) | 0x40U;
    const bool is_nan = (wide & 0x7FFFFFFFU) > 0x7F800000U;
    return static_cast<std::uint16_t>(is_nan ? quiet : nearest);
  }
};

static_assert(sizeof(Bf16) == 2 && std::is_trivially_copyable_v<Bf16> &&
              std::is_trivially_default_constructible_v<Bf16>);

}  // namespace pleat
