// SPDX-License-Identifier: Apache-2.0
// The order of the samples: shuffling, split, blend, and independence of the batches.
#include <map>
#include <set>

#include "data_test.hpp"

namespace pleat::test {
namespace {

constexpr std::int64_t kSequence = 4;

/// Text whose sample i is the four letters of i and the first one of the next: each
/// sample can be told by its first three bytes.
std::string numbered_text(int samples, char mark) {
  std::string text;
  for (int i = 0; i <= samples; ++i) text += fmt::format("{}{:03}", mark, i);
  return text.substr(0, static_cast<std::size_t>(samples) * 4 + 1);
}

/// The mark and number of a sample.
std::string name_of(const std::vector<std::int64_t>& tokens) {
  return {tokens.begin(), tokens.begin() + 4};
}

class TokenOrder : public testing::Test {
 protected:
  TokenOrder() {
    write_file(folder_.file("a"), numbered_text(100, 'a'));
    write_file(folder_.file("b"), numbered_text(37, 'b'));
    config_.paths = {folder_.file("a"), folder_.file("b")};
    config_.split = 0.1;
  }
  std::unique_ptr<io::TokenData> open(std::uint64_t seed = 1) const {
    return io::open_token_data(config_, kSequence, 256, seed);
  }
  static std::vector<std::string> training(const io::TokenData& data, std::int64_t first,
                                           std::int64_t count) {
    std::vector<std::string> names;
    for (std::int64_t i = first; i < first + count; ++i) {
      names.push_back(name_of(training_sample(data, i, kSequence)));
    }
    return names;
  }
  static std::set<std::string> validation(const io::TokenData& data) {
    std::set<std::string> names;
    for (std::int64_t i = 0; i < data.validation_samples(); ++i) {
      names.insert(name_of(validation_sample(data, i, kSequence)));
    }
    return names;
  }

  TemporaryFolder folder_;
  io::DataConfig config_;
};

TEST_F(TokenOrder, AnEpochTakesEverySampleOnceAndNoHeldOutOne) {
  for (const bool shuffle : {false, true}) {
    config_.shuffle = shuffle;
    const auto data = open();
    EXPECT_EQ(data->validation_samples(), 14);
    EXPECT_EQ(data->training_samples(), 123);
    const std::set<std::string> held_out = validation(*data);
    EXPECT_EQ(held_out.size(), 14U);
    for (const std::int64_t epoch : {0, 1, 5}) {
      const auto names = training(*data, epoch * 123, 123);
      std::set<std::string> all(names.begin(), names.end());
      EXPECT_EQ(all.size(), 123U);
      all.insert(held_out.begin(), held_out.end());
      EXPECT_EQ(all.size(), 137U) << "training and validation together are everything";
    }
  }
}

TEST_F(TokenOrder, WithoutShuffleTheFilesOrderStands) {
  config_.shuffle = false;
  const auto data = open();
  const auto names = training(*data, 0, 246);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.begin() + 123));
  EXPECT_TRUE(std::equal(names.begin(), names.begin() + 123, names.begin() + 123));
}

TEST_F(TokenOrder, EpochsAndSeedsShuffleDifferently) {
  const auto data = open(1);
  const auto first = training(*data, 0, 123);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  EXPECT_NE(first, training(*data, 123, 123));
  EXPECT_EQ(first, training(*open(1), 0, 123)) << "a fresh start repeats the order";
  const auto other = open(2);
  EXPECT_NE(first, training(*other, 0, 123));
  EXPECT_NE(validation(*data), validation(*other));
}

TEST_F(TokenOrder, TheHeldOutSamplesDependOnTheSeedAlone) {
  const auto held_out = validation(*open());
  config_.shuffle = false;
  EXPECT_EQ(held_out, validation(*open()));
  config_.weights = {1.0, 9.0};
  EXPECT_EQ(held_out, validation(*open()));
}

TEST_F(TokenOrder, ValidationRepeatsAfterItsEnd) {
  const auto data = open();
  EXPECT_EQ(validation_sample(*data, 3, kSequence),
            validation_sample(*data, 17, kSequence));
}

TEST_F(TokenOrder, ABatchIsItsSamplesOneByOne) {
  for (const bool weighted : {false, true}) {
    config_.weights = weighted ? std::vector<double>{2.0, 1.0} : std::vector<double>{};
    const auto data = open();
    for (const std::int64_t first : {0, 8, 119, 1000003}) {
      const io::HostBatch batch = make_batch(8, kSequence);
      data->training_batch(first, batch);
      const io::HostBatch halves = make_batch(4, kSequence);
      for (std::int64_t row = 0; row < 8; ++row) {
        const auto alone = training_sample(*data, first + row, kSequence);
        EXPECT_EQ(row_tokens(batch, static_cast<std::size_t>(row)), alone);
        if (row % 4 == 0) data->training_batch(first + row, halves);
        EXPECT_EQ(row_tokens(halves, static_cast<std::size_t>(row % 4)), alone);
      }
    }
  }
}

TEST_F(TokenOrder, WeightsSetTheShares) {
  config_.weights = {1.0, 3.0};
  const auto data = open();
  const auto names = training(*data, 0, 4000);
  std::map<std::string, int> times;
  int from_b = 0;
  for (const std::string& name : names) {
    ++times[name];
    from_b += name[0] == 'b' ? 1 : 0;
  }
  EXPECT_EQ(from_b, 3000);
  // Each file goes through its own epochs, so its samples appear equally often.
  int least = 4000;
  int most = 0;
  for (const auto& [name, count] : times) {
    if (name[0] != 'b') continue;
    least = std::min(least, count);
    most = std::max(most, count);
  }
  EXPECT_LE(most - least, 1);
}

TEST_F(TokenOrder, NoFileMayBeGivenTwice) {
  config_.paths.push_back(config_.paths.front());
  expect_input_error("PL0514", {config_.paths.front(), "twice"}, [&] { open(); });
}

TEST_F(TokenOrder, NoFileMayBeGivenTwiceUnderAnotherSpelling) {
  const std::string file = config_.paths.front();
  std::filesystem::create_symlink(file, folder_.file("link"));
  std::filesystem::create_hard_link(file, folder_.file("hard_link"));
  for (const std::string& other :
       {folder_.file("./a"), folder_.file("link"), folder_.file("hard_link")}) {
    config_.paths = {file, other};
    expect_input_error("PL0514", {"'" + file + "'", "'" + other + "'", "twice"},
                       [&] { open(); });
  }
}

TEST_F(TokenOrder, APairOfMegatronMayNotBeGivenTwice) {
  config_.format = io::DataFormat::kMegatron;
  const std::string pair = PLEAT_TESTS_DIR "/data/megatron/uint16";
  for (const std::string end : {"", ".bin", ".idx"}) {
    config_.paths = {pair, pair + end};
    expect_input_error("PL0514", {"'" + pair + "'", "twice"}, [&] { open(); });
  }
  config_.paths = {pair + ".idx", pair + ".bin"};
  expect_input_error("PL0514", {"'" + pair + ".bin'", "twice"}, [&] { open(); });
}

TEST_F(TokenOrder, AWeightedFileMustKeepATrainingSample) {
  write_file(folder_.file("c"), numbered_text(1, 'c'));
  write_file(folder_.file("d"), numbered_text(1, 'd'));
  config_.paths = {folder_.file("c"), folder_.file("d")};
  config_.weights = {1.0, 1.0};
  config_.split = 0.5;
  expect_input_error("PL0512", {"leaves no sample of"}, [&] { open(); });
}

}  // namespace
}  // namespace pleat::test
