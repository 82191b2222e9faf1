// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Elementary functions that a compiler can vectorise on the host: no calls, no
/// branches. On a device they are the vendor's own.

#include <cstdint>

#include <Kokkos_Core.hpp>

namespace pleat::kernels::detail {

/// \brief e^x with a relative error below 2e-7; 0 below -87.33, infinity above 88.72 and
/// NaN for NaN, like the original.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial, 2^n by adding n to the
/// exponent bits. Adding 1.5 * 2^23 leaves the rounded n in the low bits of the mantissa.
KOKKOS_FORCEINLINE_FUNCTION float host_exponential(float x) {
  constexpr float kLowest = -87.336544F;
  constexpr float kHighest = 88.722839F;
  constexpr float kRounder = 12582912.0F;
  const float bounded = x < kLowest ? kLowest : (x > kHighest ? kHighest : x);
  const float shifted = bounded * 1.44269504F + kRounder;
  const float n = shifted - kRounder;
  const float r = (bounded - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.98412698e-4F;  // Taylor's coefficients: 1/7!, 1/6!, ..., 1/2!
  p = p * r + 1.38888889e-3F;
  p = p * r + 8.33333377e-3F;
  p = p * r + 4.16666679e-2F;
  p = p * r + 1.66666672e-1F;
  p = p * r + 0.5F;
  p = (p * r) * r + r + 1.0F;
  const std::uint32_t exponent = Kokkos::bit_cast<std::uint32_t>(shifted) << 23;
  float result = Kokkos::bit_cast<float>(Kokkos::bit_cast<std::uint32_t>(p) + exponent);
  result = x < kLowest ? 0.0F : result;
  result = x > kHighest ? Kokkos::Experimental::infinity_v<float> : result;
  return x == x ? result : x;
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
