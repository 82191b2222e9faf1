// SPDX-License-Identifier: Apache-2.0
#include "data_test.hpp"

namespace pleat::test {
namespace {

using io::DataConfig;
using io::DataFormat;

DataConfig text_config(std::vector<std::string> paths) {
  DataConfig config;
  config.format = DataFormat::kText;
  config.paths = std::move(paths);
  config.shuffle = false;
  return config;
}

TEST(TokenText, SamplesOverlapByOneToken) {
  const TemporaryFolder folder;
  write_file(folder.file("a.txt"),
             "abcdefghijkl");  // 12 tokens: 3 samples of 3 and 2 left
  const auto data = io::open_token_data(text_config({folder.file("a.txt")}), 3, 256, 1);
  ASSERT_EQ(data->training_samples(), 3);
  EXPECT_EQ(data->validation_samples(), 0);
  const std::vector<std::int64_t> first = {'a', 'b', 'c', 'd'};
  const std::vector<std::int64_t> second = {'d', 'e', 'f', 'g'};
  const std::vector<std::int64_t> third = {'g', 'h', 'i', 'j'};
  EXPECT_EQ(training_sample(*data, 0, 3), first);
  EXPECT_EQ(training_sample(*data, 1, 3), second);
  EXPECT_EQ(training_sample(*data, 2, 3), third);
  EXPECT_EQ(training_sample(*data, 3, 3), first) << "the next epoch";
  EXPECT_THAT(data->description(),
              testing::HasSubstr("2 tokens at the end are left out"));
}

TEST(TokenText, LabelsFollowTokensAndAllPositionsCarryLoss) {
  const TemporaryFolder folder;
  write_file(folder.file("a.txt"), std::string("\x00\x7f\x80\xff", 4));
  const auto data = io::open_token_data(text_config({folder.file("a.txt")}), 3, 256, 1);
  const io::HostBatch batch = make_batch(1, 3);
  data->training_batch(0, batch);
  const std::vector<std::int32_t> expected = {0x00, 0x7f, 0x80, 0xff};
  for (std::size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(batch.tokens_BS(0, s), expected[s]);
    EXPECT_EQ(batch.labels_BS(0, s), expected[s + 1]);
    EXPECT_EQ(batch.loss_mask_BS(0, s), 1);
    EXPECT_EQ(batch.real_BS(0, s), 1);
  }
}

TEST(TokenText, TheIdentityIsThatOfTheContentWhereverItLies) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.txt");
  const auto identity = [](const std::vector<std::string>& paths) {
    return io::open_token_data(text_config(paths), 3, 256, 1)->identity();
  };
  std::string text(400'000, 'x');
  write_file(path, text);
  const std::string before = identity({path});
  EXPECT_THAT(before, testing::MatchesRegex("133333 samples, hash [0-9a-f]{16}"));
  write_file(folder.file("b.txt"), text);
  EXPECT_EQ(identity({folder.file("b.txt")}), before);
  EXPECT_EQ(identity({path, folder.file("b.txt")}), before + "\n" + before);
  // As many bytes, one of them another, at either end.
  for (const std::size_t place : {std::size_t{0}, text.size() - 1}) {
    std::string other = text;
    other[place] = 'y';
    write_file(path, other);
    EXPECT_NE(identity({path}), before) << place;
  }
}

// The real text against the file itself: with S = 97 every byte but the first and the
// dropped ones is a label once, in order.
TEST(TokenText, RealTextIsReadAsItIs) {
  const std::string path = PLEAT_SOURCE_DIR "/inputs/data/pride_and_prejudice.txt";
  const std::string text = read_file(path);
  ASSERT_EQ(text.size(), 684768U);
  const std::int64_t sequence = 97;
  const auto data = io::open_token_data(text_config({path}), sequence, 256, 1);
  std::string labels;
  const io::HostBatch batch = make_batch(1, sequence);
  for (std::int64_t i = 0; i < data->training_samples(); ++i) {
    data->training_batch(i, batch);
    for (std::size_t s = 0; s < 97; ++s) {
      labels.push_back(static_cast<char>(batch.labels_BS(0, s)));
    }
  }
  EXPECT_EQ(labels.size() / 97, (text.size() - 1) / 97);
  EXPECT_TRUE(labels == text.substr(1, labels.size()));
}

TEST(TokenText, FilesFollowEachOther) {
  const TemporaryFolder folder;
  write_file(folder.file("a.txt"), "abc");
  write_file(folder.file("b.txt"), "xyzw!");
  const auto config = text_config({folder.file("a.txt"), folder.file("b.txt")});
  const auto data = io::open_token_data(config, 2, 256, 1);
  ASSERT_EQ(data->training_samples(), 3);
  EXPECT_EQ(training_sample(*data, 0, 2), (std::vector<std::int64_t>{'a', 'b', 'c'}));
  EXPECT_EQ(training_sample(*data, 1, 2), (std::vector<std::int64_t>{'x', 'y', 'z'}));
  EXPECT_EQ(training_sample(*data, 2, 2), (std::vector<std::int64_t>{'z', 'w', '!'}));
}

TEST(TokenText, BadFilesAreNamed) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.txt");
  const auto open = [&] { io::open_token_data(text_config({path}), 8, 256, 1); };
  expect_input_error("PL0501", {path, "No such file", "relative to the deck's folder or the working"}, open);
  write_file(path, "");
  expect_input_error("PL0502", {path, "empty"}, open);
  write_file(path, "12345678");
  expect_input_error("PL0503", {path, "8 tokens", "9 of one sample"}, open);
  write_file(path, "123456789");
  open();
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  expect_input_error("PL0501", {path, "plain file"}, open);
}

TEST(TokenText, TokensBeyondTheVocabularyAreLocated) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.txt");
  write_file(path, "aaaaaaaaaaaza");
  expect_input_error("PL0504",
                     {path, "sample 2", "token 122", "position 3", "model.vocab = 122"},
                     [&] { io::open_token_data(text_config({path}), 4, 122, 1); });
  io::open_token_data(text_config({path}), 4, 123, 1);
}

TEST(TokenText, ImpossibleSettingsAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.txt");
  write_file(path, "0123456789");
  const auto open = [](const DataConfig& config) {
    io::open_token_data(config, 3, 256, 1);
  };
  DataConfig config = text_config({});
  expect_input_error("PL0514", {"data.path"}, [&] { open(config); });
  config = text_config({path});
  config.weights = {1.0, 2.0};
  expect_input_error("PL0511", {"2 entries for 1 paths"}, [&] { open(config); });
  for (const double weight : {0.0, -1.0, std::nan("")}) {
    config.weights = {weight};
    expect_input_error("PL0511", {"positive"}, [&] { open(config); });
  }
  config.weights = {};
  for (const double split : {-0.1, 1.0, std::nan("")}) {
    config.split = split;
    expect_input_error("PL0512", {"data.split"}, [&] { open(config); });
  }
  config.split = 0.1;
  expect_input_error("PL0512", {"holds out none", "3 samples"}, [&] { open(config); });
  config.split = 0.9;
  expect_input_error("PL0512", {"none to train on"}, [&] { open(config); });
  config.split = 0.0;
  config.tokenizer = "words";
  expect_input_error("PL0513", {"'words'"}, [&] { open(config); });
  config.tokenizer = folder.file("absent.model");
  EXPECT_THROW(open(config), InputError);
}

}  // namespace
}  // namespace pleat::test
