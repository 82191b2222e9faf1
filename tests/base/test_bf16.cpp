// SPDX-License-Identifier: Apache-2.0
// Conversions of the 16-bit format over all of its values, and of fp32 numbers around them.
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "pleat/base/types.hpp"

namespace pleat::test {
namespace {

constexpr std::uint32_t kValues = 1U << 16;

float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint16_t rounded(float value) { return Bf16(value).bits; }

TEST(Bf16, EveryValueSurvivesTheWayToFp32AndBack) {
  for (std::uint32_t bits = 0; bits < kValues; ++bits) {
    const Bf16 value = Bf16::from_bits(static_cast<std::uint16_t>(bits));
    const float wide = value;
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(wide)))) << bits;
    } else {
      ASSERT_EQ(rounded(wide), bits);
      ASSERT_EQ(static_cast<double>(value), static_cast<double>(wide));
    }
  }
}

// Between neighbours, on both sides of zero: below the middle down, above it up, at the middle
// to the one that is even.
TEST(Bf16, RoundsToNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits < kValues; ++bits) {
    if (std::isnan(float_of(bits << 16)) || std::isinf(float_of(bits << 16))) continue;
    const std::uint32_t lower = bits << 16;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(rounded(float_of(lower + 1)), bits);
    ASSERT_EQ(rounded(float_of(lower + 0x7FFF)), bits);
    ASSERT_EQ(rounded(float_of(lower + 0x8000)), even);
    ASSERT_EQ(rounded(float_of(lower + 0x8001)), bits + 1);
    ASSERT_EQ(rounded(float_of(lower + 0xFFFF)), bits + 1);
  }
}

TEST(Bf16, NanStaysNanAndTheLargestBecomeInfinite) {
  // Payloads that lie in the lost half alone, with either sign.
  for (const std::uint32_t bits : {0x7F800001U, 0xFF800001U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(float_of(bits))))) << bits;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(static_cast<float>(Bf16(infinity)), infinity);
  EXPECT_EQ(static_cast<float>(Bf16(std::numeric_limits<float>::max())), infinity);
  EXPECT_EQ(static_cast<float>(Bf16(-std::numeric_limits<float>::max())), -infinity);
  EXPECT_TRUE(std::signbit(static_cast<float>(Bf16(-0.0F))));
}

TEST(Bf16, ErrorsAreBelowTheRoundoff) {
  for (float value = 1.0e-30F; value < 1.0e30F; value *= 1.0371F) {
    const double error = std::abs(static_cast<double>(Bf16(value)) - static_cast<double>(value));
    ASSERT_LE(error, Bf16::kRoundoff * static_cast<double>(value));
  }
}

TEST(Bf16, AddsInFp32) {
  Bf16 sum(256);
  sum += 1.0F;  // the tie between 256 and 258
  EXPECT_EQ(static_cast<float>(sum), 256.0F);
  sum += 1.5F;
  EXPECT_EQ(static_cast<float>(sum), 258.0F);
}

// The compiler's vectors and its scalar code agree.
TEST(Bf16, RowsOfNumbersConvertLikeSingleOnes) {
  constexpr int kCount = 1003;
  Bf16 row[kCount];
  float wide[kCount];
  for (std::uint32_t start = 0; start < 64; ++start) {
    for (int i = 0; i < kCount; ++i) {
      wide[i] = float_of((start << 26) + static_cast<std::uint32_t>(i) * 66107U);
    }
    for (int i = 0; i < kCount; ++i) row[i] = Bf16(wide[i]);
    for (int i = 0; i < kCount; ++i) {
      volatile float single = wide[i];
      ASSERT_EQ(row[i].bits, rounded(single));
    }
  }
}

}  // namespace
}  // namespace pleat::test
