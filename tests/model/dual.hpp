// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Dual numbers: a value with its derivative along one direction, exact to
/// rounding.

#include <cmath>

namespace pleat::test {

/// \brief value + slope epsilon, epsilon^2 = 0.
struct Dual {
  double value = 0.0;
  double slope = 0.0;

  Dual() = default;
  Dual(double constant) : value(constant) {}  // constants mix freely with variables
  Dual(double value_, double slope_) : value(value_), slope(slope_) {}

  Dual& operator+=(const Dual& b) { return *this = {value + b.value, slope + b.slope}; }
};

inline Dual operator+(Dual a, const Dual& b) { return a += b; }
inline Dual operator-(const Dual& a) { return {-a.value, -a.slope}; }
inline Dual operator-(const Dual& a, const Dual& b) {
  return {a.value - b.value, a.slope - b.slope};
}
inline Dual operator*(const Dual& a, const Dual& b) {
  return {a.value * b.value, a.slope * b.value + a.value * b.slope};
}
inline Dual operator/(const Dual& a, const Dual& b) {
  const double quotient = a.value / b.value;
  return {quotient, (a.slope - quotient * b.slope) / b.value};
}
inline Dual exp(const Dual& a) {
  const double power = std::exp(a.value);
  return {power, power * a.slope};
}
inline Dual log(const Dual& a) { return {std::log(a.value), a.slope / a.value}; }
inline Dual sqrt(const Dual& a) {
  const double root = std::sqrt(a.value);
  return {root, a.slope / (2.0 * root)};
}

inline double value_of(double a) { return a; }
inline double value_of(const Dual& a) { return a.value; }

}  // namespace pleat::test
