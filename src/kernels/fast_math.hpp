// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Elementary functions that a compiler can vectorise on the host: no calls, no
/// branches. On a device they are the vendor's own.

#include <cstdint>

#include <Kokkos_Core.hpp>

namespace pleat::kernels::detail {

/// \brief e^x with a relative error below 2e-7; 0 below -87.7, infinity above 88.37 and
/// NaN for NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 leaves the rounded n in the low
/// bits of the mantissa, which become the exponent of 2^n: 0 for n = -127, infinity for n
/// = 128, so both ends need no test. ln 2 is subtracted in two parts, of which n times
/// the first is exact.
KOKKOS_FORCEINLINE_FUNCTION float host_exponential(float x) {
  constexpr float kRounder = 12582912.0F;
  const float above = x < -88.0F ? -88.0F : x;
  const float bounded = above > 89.0F ? 89.0F : above;
  const float shifted = bounded * 1.44269504F + kRounder;
  const float n = shifted - kRounder;
  const float r = (bounded - n * 0.693359375F) + n * 2.12194440e-4F;
  // Minimax for e^r with the first two coefficients 1 (Remez): relative error 3e-9.
  float p = 1.38144669e-3F;
  p = p * r + 8.36878041e-3F;
  p = p * r + 4.16683942e-2F;
  p = p * r + 1.66665201e-1F;
  p = p * r + 4.99999934e-1F;
  p = (p * r) * r + r + 1.0F;
  const std::uint32_t exponent = (Kokkos::bit_cast<std::uint32_t>(shifted) + 127U) << 23;
  return p * Kokkos::bit_cast<float>(exponent);
}

/// \brief e^x in fp32; see host_exponential.
KOKKOS_FORCEINLINE_FUNCTION float exponential(float x) {
  KOKKOS_IF_ON_HOST((return host_exponential(x);))
  KOKKOS_IF_ON_DEVICE((return Kokkos::exp(x);))
}

/// \brief e^x in fp64, to the last bits: this is what references are compared with.
KOKKOS_FORCEINLINE_FUNCTION double exponential(double x) { return Kokkos::exp(x); }

/// \brief 1 / (1 + e^-x).
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A sigmoid(A x) {
  return A(1) / (A(1) + exponential(-x));
}

}  // namespace pleat::kernels::detail
