// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "pleat/io/sampling.hpp"

namespace pleat::io {
namespace {

TEST(KeyedPermutation, VisitsEveryElementOnceAtEverySize) {
  for (std::int64_t size = 1; size <= 300; ++size) {
    const KeyedPermutation permutation(size, 7, 11);
    std::vector<bool> seen(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t image = permutation(i);
      ASSERT_TRUE(image >= 0 && image < size);
      ASSERT_FALSE(seen[static_cast<std::size_t>(image)]) << "size " << size;
      seen[static_cast<std::size_t>(image)] = true;
    }
  }
}

TEST(KeyedPermutation, DependsOnSeedAndStream) {
  const std::int64_t size = 1000;
  const KeyedPermutation base(size, 1, 1);
  for (const auto& [seed, stream] : {std::pair{1, 1}, {2, 1}, {1, 2}}) {
    const KeyedPermutation other(size, seed, stream);
    std::int64_t equal = 0;
    for (std::int64_t i = 0; i < size; ++i) equal += base(i) == other(i) ? 1 : 0;
    if (seed == 1 && stream == 1) {
      EXPECT_EQ(equal, size);
    } else {
      EXPECT_LT(equal, 10);  // one fixed point is expected of a random permutation
    }
  }
}

// Each of the 24 orders of four elements should come up equally often over the streams.
TEST(KeyedPermutation, AllOrdersAreEquallyLikely) {
  constexpr int kTrials = 24000;
  std::vector<int> counts(256);
  for (int stream = 0; stream < kTrials; ++stream) {
    const KeyedPermutation permutation(4, 3, static_cast<std::uint64_t>(stream));
    const auto code =
        permutation(0) * 64 + permutation(1) * 16 + permutation(2) * 4 + permutation(3);
    ++counts[static_cast<std::size_t>(code)];
  }
  double chi_square = 0.0;
  int orders = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++orders;
    chi_square += std::pow(count - kTrials / 24.0, 2) / (kTrials / 24.0);
  }
  EXPECT_EQ(orders, 24);
  EXPECT_LT(chi_square, 49.7);  // 23 degrees of freedom: exceeded once in 1000 seeds
}

// Where element 0 goes, and how far neighbours are apart afterwards, in a large
// permutation.
TEST(KeyedPermutation, NeighboursAreScattered) {
  const std::int64_t size = 10007;
  const KeyedPermutation permutation(size, 5, 6);
  double distance = 0.0;
  for (std::int64_t i = 0; i + 1 < size; ++i) {
    distance += std::abs(static_cast<double>(permutation(i + 1) - permutation(i)));
  }
  // Two uniform places are size / 3 apart on average.
  EXPECT_NEAR(distance / static_cast<double>(size - 1), static_cast<double>(size) / 3.0,
              0.02 * static_cast<double>(size));
}

TEST(HeldOutSplit, PartitionsTheSamples) {
  for (const std::int64_t samples : {1, 2, 3, 10, 97, 1000}) {
    for (const double share : {0.0, 0.01, 0.1, 0.3, 0.5, 0.77, 0.99}) {
      const HeldOutSplit split(samples, share, 42);
      ASSERT_EQ(split.held_out(), std::llround(share * static_cast<double>(samples)));
      std::vector<std::int64_t> all;
      for (std::int64_t i = 0; i < split.held_out(); ++i) {
        all.push_back(split.held_out_sample(i));
      }
      ASSERT_TRUE(std::is_sorted(all.begin(), all.end()));
      std::vector<std::int64_t> training;
      for (std::int64_t i = 0; i < split.training(); ++i) {
        training.push_back(split.training_sample(i));
      }
      ASSERT_TRUE(std::is_sorted(training.begin(), training.end()));
      for (std::int64_t sample = 0; sample <= samples; ++sample) {
        const auto before = std::lower_bound(training.begin(), training.end(), sample);
        ASSERT_EQ(split.training_before(sample), before - training.begin());
      }
      all.insert(all.end(), training.begin(), training.end());
      const std::set<std::int64_t> unique(all.begin(), all.end());
      ASSERT_EQ(static_cast<std::int64_t>(unique.size()), samples);
      ASSERT_EQ(*unique.begin(), 0);
      ASSERT_EQ(*unique.rbegin(), samples - 1);
    }
  }
}

TEST(HeldOutSplit, DependsOnTheSeed) {
  const HeldOutSplit one(10000, 0.01, 1);
  const HeldOutSplit two(10000, 0.01, 2);
  int equal = 0;
  for (std::int64_t i = 0; i < one.held_out(); ++i) {
    equal += one.held_out_sample(i) == two.held_out_sample(i) ? 1 : 0;
  }
  EXPECT_LT(equal, 10);
}

TEST(BlendOrder, CountsEachSourceWithoutGaps) {
  const std::vector<double> weights = {0.1, 3.0, 0.7, 0.7, 1e-3, 2.5};
  const BlendOrder blend(weights);
  std::vector<std::int64_t> next(weights.size());
  for (std::int64_t sample = 0; sample < 20000; ++sample) {
    const BlendOrder::Place place = blend(sample);
    ASSERT_EQ(place.position, next[place.source]) << "sample " << sample;
    ++next[place.source];
  }
}

TEST(BlendOrder, EachSourceHasItsShareAtAnyTime) {
  const std::vector<double> weights = {5.0, 1.0, 1.0, 3.0, 0.5};
  const BlendOrder blend(weights);
  std::vector<double> counts(weights.size());
  for (std::int64_t sample = 0; sample < 10000; ++sample) {
    counts[blend(sample).source] += 1.0;
    for (std::size_t s = 0; s < weights.size(); ++s) {
      const double expected = static_cast<double>(sample + 1) * weights[s] / 10.5;
      ASSERT_LE(std::abs(counts[s] - expected), 1.5)
          << "source " << s << " at " << sample;
    }
  }
}

TEST(BlendOrder, FarSamplesAreReachedDirectly) {
  const BlendOrder blend({1.0, 2.0});
  const std::int64_t far = std::int64_t{3} << 50;
  std::int64_t second = 0;
  for (std::int64_t i = 0; i < 3; ++i) second += blend(far + i).source == 1 ? 1 : 0;
  EXPECT_EQ(second, 2);
  // Two thirds of all before went to the second source, give or take the rounding.
  for (std::int64_t i = 0; i < 3; ++i) {
    const BlendOrder::Place place = blend(far + i);
    const std::int64_t expected = place.source == 1 ? far / 3 * 2 : far / 3;
    EXPECT_NEAR(static_cast<double>(place.position - expected), 0.0, 2.0);
  }
}

}  // namespace
}  // namespace pleat::io
