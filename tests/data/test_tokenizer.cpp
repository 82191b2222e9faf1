// SPDX-License-Identifier: Apache-2.0
#include "data_test.hpp"
#include "pleat/io/tokenizer.hpp"

namespace pleat::test {
namespace {

using Tokens = std::vector<std::int32_t>;

TEST(Tokenizer, BytesAreThemselves) {
  const auto tokenizer = io::make_tokenizer("bytes");
  EXPECT_EQ(tokenizer->vocab(), 256);
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  const Tokens tokens = tokenizer->encode(text);
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(tokens[static_cast<std::size_t>(byte)], byte);
  }
  EXPECT_EQ(tokenizer->decode(tokens), text);
  EXPECT_EQ(tokenizer->decode(Tokens{-1, 'a', 256, 'b'}), "ab");
}

constexpr const char* kModel = PLEAT_TESTS_DIR "/data/sentencepiece/austen.model";

// Ids as Python's sentencepiece gives them for the same model.
TEST(Tokenizer, SentencePieceAgreesWithThePythonPackage) {
  if (!io::have_sentencepiece()) GTEST_SKIP() << "built without SentencePiece";
  const auto tokenizer = io::make_tokenizer(kModel);
  EXPECT_EQ(tokenizer->vocab(), 400);
  const std::string sentence = "It is a truth universally acknowledged";
  const Tokens expected = {304, 345, 343, 274, 261, 259, 352, 328, 350,
                           343, 355, 348, 349, 319, 351, 346, 289, 358,
                           261, 357, 368, 348, 329, 354, 276, 361, 276};
  EXPECT_EQ(tokenizer->encode(sentence), expected);
  EXPECT_EQ(tokenizer->decode(expected), sentence);
  const std::string two_lines = "A line.\nAnother, na\u00efve.";
  const Tokens lines = {343, 390, 335, 262, 344, 365, 13,  390, 348,
                        300, 340, 362, 287, 346, 198, 178, 315, 365};
  EXPECT_EQ(tokenizer->encode(two_lines), lines);
  EXPECT_EQ(tokenizer->decode(lines), two_lines);
  EXPECT_EQ(tokenizer->decode(Tokens{-5, 400, 1 << 30}), "");
}

TEST(Tokenizer, SentencePieceReadsTextForTraining) {
  if (!io::have_sentencepiece()) GTEST_SKIP() << "built without SentencePiece";
  io::DataConfig config;
  config.paths = {PLEAT_SOURCE_DIR "/inputs/data/pride_and_prejudice.txt"};
  config.tokenizer = kModel;
  config.shuffle = false;
  const auto data = io::open_token_data(config, 64, 400, 1);
  // About two bytes a token with so small a vocabulary.
  EXPECT_GT(data->training_samples() * 64, 684768 / 3);
  EXPECT_LT(data->training_samples() * 64, 684768);
  const auto tokens = training_sample(*data, 0, 64);
  const auto text =
      io::make_tokenizer(kModel)->decode(Tokens(tokens.begin(), tokens.end()));
  EXPECT_THAT(text, testing::StartsWith("PRIDE AND PREJUDICE\n\nBy Jane Austen"));
  expect_input_error("PL0504", {"model.vocab = 256"},
                     [&] { io::open_token_data(config, 64, 256, 1); });
}

TEST(Tokenizer, UnusableModelsAreRefused) {
  expect_input_error("PL0513", {"'gpt2'", "bytes"}, [] { io::make_tokenizer("gpt2"); });
  const TemporaryFolder folder;
  const std::string path = folder.file("broken.model");
  write_file(path, "this is no model");
  expect_input_error("PL0513", {path}, [&] { io::make_tokenizer(path); });
  write_file(path, "");
  expect_input_error("PL0513", {path}, [&] { io::make_tokenizer(path); });
}

}  // namespace
}  // namespace pleat::test
