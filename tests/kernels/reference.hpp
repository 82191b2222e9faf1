// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the tests of the kernels share: tensors to and from the device,
/// comparison, and central differences. References are plain serial loops in fp64 over
/// row-major vectors.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "pleat/base/copy.hpp"
#include "pleat/base/random.hpp"
#include "pleat/base/types.hpp"

namespace pleat::test {

using Index = std::int64_t;
using Values = std::vector<double>;

using Scalars = testing::Types<float, double>;
/// \brief What activations and weights are stored as.
using Storages = testing::Types<float, double, Bf16>;

/// \brief Normal numbers that depend on the seed alone, rounded to fp32 so that the fp32
/// and the fp64 kernel get the same input.
inline Values random_values(Index count, std::uint64_t seed, double scale = 1.0) {
  const CounterRandom random(seed, 0);
  Values values(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) {
    const auto index = static_cast<std::size_t>(i);
    values[index] = static_cast<float>(scale * random.normal(index));
  }
  return values;
}

/// \brief The same, rounded to T as well.
template <class T>
Values random_values(Index count, std::uint64_t seed, double scale = 1.0) {
  Values values = random_values(count, seed, scale);
  for (double& value : values) value = static_cast<double>(static_cast<T>(value));
  return values;
}

/// \brief A tensor of those extents on the device, filled from row-major values.
template <class T, class From, class... Extents>
auto to_device(const std::vector<From>& values, Extents... extents) {
  constexpr int kRank = static_cast<int>(sizeof...(Extents));
  const DeviceView<T, kRank> view("test", static_cast<std::size_t>(extents)...);
  EXPECT_EQ(view.size(), values.size());
  const auto mirror = host_mirror(view);
  for (std::size_t i = 0; i < values.size(); ++i) {
    mirror.data()[i] = static_cast<T>(values[i]);
  }
  copy_tensor(view, mirror);
  return view;
}

/// \brief The elements of a tensor, row-major; waits for the device.
template <class View>
Values to_host(const View& view) {
  Kokkos::fence();
  const auto mirror = host_copy(view);
  Values values(mirror.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(mirror.data()[i]);
  }
  return values;
}

inline double largest_magnitude(const Values& values) {
  double largest = 0.0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// \brief Rounding errors that sums of a few hundred terms are allowed. In bf16 the sums are
/// formed in fp32, so that only the rounding of the result counts.
template <class T>
constexpr double tolerance() {
  if constexpr (std::is_same_v<T, Bf16>) {
    return 1.01 * Bf16::kRoundoff;
  } else {
    return 64.0 * static_cast<double>(std::numeric_limits<T>::epsilon());
  }
}

/// \brief Each element agrees to `relative` of the largest one of its tensor.
inline void expect_close(const Values& actual, const Values& expected, double relative,
                         const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  const double bound = relative * std::max(largest_magnitude(expected), 1.0e-30);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    // Written so that NaN fails.
    ASSERT_TRUE(std::abs(actual[i] - expected[i]) <= bound)
        << what << ": element " << i << " is " << actual[i] << ", expected "
        << expected[i] << " to within " << bound;
  }
}

/// \brief The same bits.
inline void expect_same(const Values& actual, const Values& expected,
                        const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i], expected[i]) << what << ": element " << i;
  }
}

/// \brief sum of weight_i value_i: makes a scalar loss of a tensor, with gradient
/// `weight`.
inline double dot(const Values& weight, const Values& value) {
  double sum = 0.0;
  for (std::size_t i = 0; i < weight.size(); ++i) sum += weight[i] * value[i];
  return sum;
}

/// \brief Compares a gradient with central differences of `loss` at x, at no more than
/// `samples` elements spread over it.
inline void expect_gradient(const std::function<double(const Values&)>& loss,
                            const Values& x, const Values& gradient,
                            const std::string& what, std::size_t samples = 24) {
  ASSERT_EQ(gradient.size(), x.size()) << what;
  constexpr double kStep = 1.0e-5;
  const double bound = 1.0e-7 * std::max(1.0, largest_magnitude(gradient));
  const std::size_t stride = std::max<std::size_t>(1, x.size() / samples) | 1U;
  for (std::size_t i = 0; i < x.size(); i += stride) {
    Values shifted = x;
    shifted[i] = x[i] + kStep;
    const double above = loss(shifted);
    shifted[i] = x[i] - kStep;
    const double below = loss(shifted);
    const double expected = (above - below) / (2.0 * kStep);
    ASSERT_TRUE(std::abs(gradient[i] - expected) <= bound)
        << what << ": element " << i << " is " << gradient[i] << ", differences give "
        << expected;
  }
}

/// \brief An execution space with one thread, to show that results do not depend on
/// threads.
inline ExecSpace one_thread() {
#ifdef KOKKOS_ENABLE_OPENMP
  if constexpr (std::is_same_v<ExecSpace, Kokkos::OpenMP>) return Kokkos::OpenMP(1);
#endif
  return ExecSpace();
}

}  // namespace pleat::test
