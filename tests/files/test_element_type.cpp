// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "files/support.hpp"
#include "pleat/io/element_type.hpp"

namespace pleat::io {
namespace {

double decode(ElementType type, std::uint16_t bits) {
  double value = 0.0;
  decode_elements<double>(type, std::as_bytes(std::span(&bits, 1)), std::span(&value, 1));
  return value;
}

std::uint16_t encode(ElementType type, double value) {
  std::uint16_t bits = 0;
  encode_elements<double>(type, std::span<const double>(&value, 1),
                          std::as_writable_bytes(std::span(&bits, 1)));
  return bits;
}

TEST(ElementType, NamesAndSizes) {
  EXPECT_EQ(element_size(ElementType::kF64), 8U);
  EXPECT_EQ(element_size(ElementType::kBf16), 2U);
  EXPECT_EQ(parse_element_type("bf16"), ElementType::kBf16);
  EXPECT_EQ(parse_element_type("F32"), ElementType::kF32);
  EXPECT_FALSE(parse_element_type("I32").has_value());
}

// Values from the tables of IEEE 754-2008 and of the bfloat16 definition.
TEST(ElementType, PublishedValues) {
  EXPECT_EQ(decode(ElementType::kF16, 0x3c00), 1.0);
  EXPECT_EQ(decode(ElementType::kF16, 0x7bff), 65504.0);
  EXPECT_EQ(decode(ElementType::kF16, 0x0001), std::ldexp(1.0, -24));
  EXPECT_EQ(decode(ElementType::kF16, 0x0400), std::ldexp(1.0, -14));
  EXPECT_EQ(decode(ElementType::kF16, 0xfc00), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(encode(ElementType::kF16, 1.0 / 3.0), 0x3555);
  EXPECT_EQ(encode(ElementType::kF16, 65519.0), 0x7bff);
  EXPECT_EQ(encode(ElementType::kF16, 65520.0), 0x7c00);
  EXPECT_EQ(encode(ElementType::kBf16, 1.0 / 3.0), 0x3eab);
  EXPECT_EQ(encode(ElementType::kBf16, -2.0), 0xc000);
  EXPECT_EQ(encode(ElementType::kBf16, 3.0e38), 0x7f62);
  EXPECT_EQ(encode(ElementType::kBf16, 1.0e39), 0x7f80);
}

TEST(ElementType, EveryNarrowValueSurvivesARoundTrip) {
  for (const ElementType type : {ElementType::kF16, ElementType::kBf16}) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const double value = decode(type, static_cast<std::uint16_t>(bits));
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(decode(type, encode(type, value))));
      } else {
        ASSERT_EQ(encode(type, value), bits) << value;
      }
    }
  }
}

// Between two neighbours the nearer one is taken, in the middle the even one; just beside
// the middle decides a bit that rounding by way of float would lose.
TEST(ElementType, RoundsToNearestEvenAtOnce) {
  for (const ElementType type : {ElementType::kF16, ElementType::kBf16}) {
    const std::uint16_t largest = type == ElementType::kF16 ? 0x7bff : 0x7f7f;
    for (std::uint32_t bits = 0; bits < largest; ++bits) {
      const double low = decode(type, static_cast<std::uint16_t>(bits));
      const double high = decode(type, static_cast<std::uint16_t>(bits + 1));
      const double middle = (low + high) / 2.0;
      ASSERT_EQ(encode(type, middle), bits + (bits & 1U)) << low;
      ASSERT_EQ(encode(type, std::nextafter(middle, 0.0)), bits);
      ASSERT_EQ(encode(type, std::nextafter(middle, high)), bits + 1);
    }
  }
}

TEST(ElementType, CountsWhatLeavesTheRange) {
  const std::vector<double> values{1.0, 70000.0, -1e300, HUGE_VAL, NAN};
  std::vector<std::byte> half(10);
  EXPECT_EQ(encode_elements<double>(ElementType::kF16, values, half), 2);
  std::vector<std::byte> single(20);
  EXPECT_EQ(encode_elements<double>(ElementType::kF32, values, single), 1);
}

}  // namespace
}  // namespace pleat::io
