// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Comparison of arrays relative to their largest element.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace pleat::test {

inline double largest_of(const std::vector<double>& values) {
  double largest = 0.0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

inline double norm_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// \brief Largest difference over the largest expected element (or `floor`, if that is
/// more); NaN and different sizes are infinitely far.
inline double deviation(const std::vector<double>& actual,
                        const std::vector<double>& expected, double floor = 1e-300) {
  if (actual.size() != expected.size()) return HUGE_VAL;
  double worst = 0.0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(actual[i] - expected[i]);
    if (!(difference <= worst)) worst = std::isnan(difference) ? HUGE_VAL : difference;
  }
  return worst / std::max(floor, largest_of(expected));
}

/// \brief Checks deviations of a quantity and keeps the worst in the test's record, which
/// --gtest_output=xml shows.
class Record {
 public:
  explicit Record(std::string quantity) : quantity_(std::move(quantity)) {}

  void expect_below(double tolerance, double deviation, const std::string& what) const {
    EXPECT_LE(deviation, tolerance) << quantity_ << ": " << what;
    if (!(deviation < worst_so_far())) {
      testing::Test::RecordProperty(quantity_, fmt::format("{:.1e}", deviation));
    }
  }

 private:
  double worst_so_far() const {
    const auto& result = *testing::UnitTest::GetInstance()->current_test_info()->result();
    for (int i = 0; i < result.test_property_count(); ++i) {
      const testing::TestProperty& property = result.GetTestProperty(i);
      if (property.key() == quantity_) return std::stod(property.value());
    }
    return 0.0;
  }

  std::string quantity_;
};

}  // namespace pleat::test
