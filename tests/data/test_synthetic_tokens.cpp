// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "data_test.hpp"
#include "pleat/io/token_source.hpp"

namespace pleat::test {
namespace {

io::DataConfig synthetic_config(std::int64_t samples) {
  io::DataConfig config;
  config.format = io::DataFormat::kSynthetic;
  config.synthetic_samples = samples;
  return config;
}

// The most frequent successor of each token is its fixed one: it follows with the
// probability of order plus its share of the noise.
TEST(SyntheticTokens, HaveALearnableStructure) {
  constexpr std::int64_t kVocab = 50;
  constexpr std::int64_t kSequence = 200;
  const auto data = io::open_token_data(synthetic_config(500), kSequence, kVocab, 9);
  ASSERT_EQ(data->training_samples(), 500);
  std::map<std::int64_t, std::map<std::int64_t, int>> pairs;
  for (std::int64_t i = 0; i < 500; ++i) {
    const auto tokens = training_sample(*data, i, kSequence);
    for (std::size_t s = 0; s < 200; ++s) ++pairs[tokens[s]][tokens[s + 1]];
  }
  EXPECT_EQ(pairs.size(), 50U) << "every token occurs";
  double followed = 0.0;
  for (const auto& [token, successors] : pairs) {
    int most = 0;
    for (const auto& [next, count] : successors) most = std::max(most, count);
    followed += most;
  }
  const double expected = io::kSyntheticOrder + (1.0 - io::kSyntheticOrder) / kVocab;
  EXPECT_NEAR(followed / (500.0 * 200.0), expected, 0.01);
}

TEST(SyntheticTokens, AreKeyedByTheSeed) {
  const auto one = io::open_token_data(synthetic_config(10), 16, 1000, 1);
  const auto same = io::open_token_data(synthetic_config(10), 16, 1000, 1);
  const auto two = io::open_token_data(synthetic_config(10), 16, 1000, 2);
  EXPECT_EQ(training_sample(*one, 4, 16), training_sample(*same, 4, 16));
  EXPECT_NE(training_sample(*one, 4, 16), training_sample(*two, 4, 16));
}

TEST(SyntheticTokens, TakeNoPathAndNeedASample) {
  io::DataConfig config = synthetic_config(0);
  expect_input_error("PL0514", {"at least one"},
                     [&] { io::open_token_data(config, 16, 1000, 1); });
  config = synthetic_config(10);
  config.paths = {"a.txt"};
  expect_input_error("PL0514", {"no data.path"},
                     [&] { io::open_token_data(config, 16, 1000, 1); });
}

TEST(SyntheticTokens, VocabularyOfOne) {
  const auto data = io::open_token_data(synthetic_config(2), 1, 1, 1);
  EXPECT_EQ(training_sample(*data, 0, 1), (std::vector<std::int64_t>{0, 0}));
}

}  // namespace
}  // namespace pleat::test
