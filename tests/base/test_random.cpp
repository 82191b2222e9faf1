// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/random.hpp"

#include <array>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace pleat {
namespace {

using Words = std::array<std::uint32_t, 4>;

/// \brief Philox4x32-10 of a counter and a key given as Random123's vectors give them:
/// the counter is (index, stream), the key is the seed, low words first.
Words philox(const Words& counter, const std::array<std::uint32_t, 2>& key) {
  const auto join = [](std::uint32_t low, std::uint32_t high) {
    return (std::uint64_t{high} << 32) | low;
  };
  const CounterRandom random(join(key[0], key[1]), join(counter[2], counter[3]));
  const auto block = random.bits(join(counter[0], counter[1]));
  return {block.word[0], block.word[1], block.word[2], block.word[3]};
}

// The known answers that Random123 publishes for philox4x32, 10 rounds (kat_vectors).
TEST(CounterRandom, EqualsThePublishedVectors) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Counter and key are the digits of pi.
  EXPECT_EQ(
      philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRandom, ValuesDependOnSeedStreamAndIndexAlone) {
  const CounterRandom random(1, 2);
  const double value = random.uniform(3);
  random.uniform(4);
  EXPECT_EQ(random.uniform(3), value);
  EXPECT_EQ(CounterRandom(1, 2).uniform(3), value);
  const std::set<std::uint64_t> distinct{random.bits64(3), random.bits64(4),
                                         CounterRandom(2, 2).bits64(3),
                                         CounterRandom(1, 3).bits64(3)};
  EXPECT_EQ(distinct.size(), 4U);
}

struct Moments {
  double mean = 0.0, variance = 0.0, skewness = 0.0, kurtosis = 0.0;
};

template <class Draw>
Moments moments(const Draw& draw) {
  constexpr int kCount = 1000000;
  Moments sums;
  for (int i = 0; i < kCount; ++i) {
    const double x = draw(static_cast<std::uint64_t>(i));
    sums.mean += x / kCount;
    sums.variance += x * x / kCount;
    sums.skewness += x * x * x / kCount;
    sums.kurtosis += x * x * x * x / kCount;
  }
  return sums;
}

// Bounds: five standard errors of the mean of a million draws.
TEST(CounterRandom, UniformMoments) {
  const CounterRandom random(42, hash_name("uniform"));
  double lowest = 1.0, highest = 0.0;
  const Moments raw = moments([&](std::uint64_t i) {
    const double x = random.uniform(i);
    lowest = std::min(lowest, x);
    highest = std::max(highest, x);
    return x;
  });
  EXPECT_NEAR(raw.mean, 1.0 / 2.0, 5.0e-3 * std::sqrt(1.0 / 12.0));
  EXPECT_NEAR(raw.variance, 1.0 / 3.0, 5.0e-3 * std::sqrt(1.0 / 5.0 - 1.0 / 9.0));
  EXPECT_NEAR(raw.skewness, 1.0 / 4.0, 5.0e-3 * std::sqrt(1.0 / 7.0 - 1.0 / 16.0));
  EXPECT_GT(lowest, 0.0);
  EXPECT_LT(highest, 1.0);
}

TEST(CounterRandom, NormalMoments) {
  const CounterRandom random(42, hash_name("normal"));
  const Moments raw = moments([&](std::uint64_t i) { return random.normal(i); });
  EXPECT_NEAR(raw.mean, 0.0, 5.0e-3);
  EXPECT_NEAR(raw.variance, 1.0, 5.0e-3 * std::sqrt(2.0));
  EXPECT_NEAR(raw.skewness, 0.0, 5.0e-3 * std::sqrt(15.0));
  EXPECT_NEAR(raw.kurtosis, 3.0, 5.0e-3 * std::sqrt(96.0));
}

TEST(CounterRandom, NeighbouringIndicesAndStreamsAreUncorrelated) {
  const CounterRandom random(7, 1), neighbour(7, 2);
  const Moments index =
      moments([&](std::uint64_t i) { return random.normal(i) * random.normal(i + 1); });
  const Moments stream =
      moments([&](std::uint64_t i) { return random.normal(i) * neighbour.normal(i); });
  EXPECT_NEAR(index.mean, 0.0, 5.0e-3);
  EXPECT_NEAR(stream.mean, 0.0, 5.0e-3);
}

// The published test vectors of FNV-1a, 64 bits.
TEST(HashName, EqualsThePublishedVectors) {
  EXPECT_EQ(hash_name(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(hash_name("a"), 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(hash_name("foobar"), 0x85944171f73967e8ULL);
}

}  // namespace
}  // namespace pleat
