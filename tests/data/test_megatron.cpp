// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "data_test.hpp"
#include "megatron_bytes.hpp"
#include "pleat/io/megatron.hpp"

namespace pleat::test {
namespace {

using Tokens = std::vector<std::int64_t>;

Tokens all_tokens(const io::MegatronReader& reader) {
  Tokens tokens(static_cast<std::size_t>(reader.tokens()));
  reader.copy(0, tokens);
  return tokens;
}

io::DataConfig megatron_config(const std::string& path) {
  io::DataConfig config;
  config.format = io::DataFormat::kMegatron;
  config.paths = {path};
  config.shuffle = false;
  return config;
}

// The pairs in tests/data/megatron were written by Megatron-Core 0.16.1
// (IndexedDatasetBuilder): five documents of 1 to 3 sequences, tokens from the generator
// below.
struct MegatronReference {
  explicit MegatronReference(std::int64_t vocab) {
    std::int64_t x = 12345;
    for (int d = 0; d < 5; ++d) {
      for (int s = 0; s < d % 3 + 1; ++s) {
        const int size = (7 * d + 11 * s) % 17;
        sizes.push_back(size);
        for (int i = 0; i < size; ++i) {
          x = (x * 1103515245 + 12345) % (std::int64_t{1} << 31);
          tokens.push_back((x >> 8) % vocab);
        }
      }
      documents.push_back(static_cast<std::int64_t>(sizes.size()));
    }
  }
  Tokens tokens;
  std::vector<std::int32_t> sizes;
  std::vector<std::int64_t> documents{0};
};

class MegatronFiles : public testing::TestWithParam<const char*> {};

TEST_P(MegatronFiles, FilesOfMegatronCoreAreRead) {
  const std::string base = std::string(PLEAT_TESTS_DIR "/data/megatron/") + GetParam();
  const bool narrow = std::string(GetParam()) == "uint16";
  const MegatronReference expected(narrow ? 50000 : 100000);
  for (const std::string ending : {"", ".bin", ".idx"}) {
    const io::MegatronReader reader(base + ending);
    EXPECT_EQ(io::megatron_type_name(reader.type()), GetParam());
    ASSERT_EQ(reader.sequences(), static_cast<std::int64_t>(expected.sizes.size()));
    for (std::size_t s = 0; s < expected.sizes.size(); ++s) {
      EXPECT_EQ(reader.sequence_size(static_cast<std::int64_t>(s)), expected.sizes[s]);
    }
    ASSERT_EQ(reader.documents(), 5);
    for (std::int64_t d = 0; d <= 5; ++d) {
      EXPECT_EQ(reader.document_begin(d),
                expected.documents[static_cast<std::size_t>(d)]);
    }
    EXPECT_EQ(all_tokens(reader), expected.tokens);
  }
}

TEST_P(MegatronFiles, TheWriterMakesMegatronCoresBytes) {
  const std::string base = std::string(PLEAT_TESTS_DIR "/data/megatron/") + GetParam();
  const bool narrow = std::string(GetParam()) == "uint16";
  const MegatronReference reference(narrow ? 50000 : 100000);
  const TemporaryFolder folder;
  io::MegatronWriter writer(folder.file("out"),
                            io::megatron_type_for(narrow ? 50000 : 100000));
  std::size_t first = 0;
  std::size_t document = 1;
  for (std::size_t s = 0; s < reference.sizes.size(); ++s) {
    const auto size = static_cast<std::size_t>(reference.sizes[s]);
    writer.append(std::span(reference.tokens).subspan(first, size / 2));
    writer.append(std::span(reference.tokens).subspan(first + size / 2, size - size / 2));
    writer.end_sequence();
    first += size;
    if (reference.documents[document] == static_cast<std::int64_t>(s) + 1) {
      writer.end_document();
      ++document;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder.file("out.idx")))
      << "not before it is finished";
  writer.finish();
  EXPECT_EQ(read_file(folder.file("out.bin")), read_file(base + ".bin"));
  EXPECT_EQ(read_file(folder.file("out.idx")), read_file(base + ".idx"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("out.bin.tmp")));
}

INSTANTIATE_TEST_SUITE_P(Types, MegatronFiles, testing::Values("uint16", "int32"),
                         [](const auto& info) { return std::string(info.param); });

template <class T>
std::string token_bytes(const Tokens& tokens) {
  std::string bytes;
  for (const std::int64_t token : tokens) put(bytes, static_cast<T>(token));
  return bytes;
}

TEST(Megatron, AllTokenTypesAreRead) {
  const Tokens tokens = {0, 1, 127, 100, 7, 99};
  const std::vector<std::pair<std::string, std::int64_t>> files = {
      {token_bytes<std::uint8_t>(tokens), 1}, {token_bytes<std::int8_t>(tokens), 1},
      {token_bytes<std::int16_t>(tokens), 2}, {token_bytes<std::int32_t>(tokens), 4},
      {token_bytes<std::int64_t>(tokens), 8}, {token_bytes<double>(tokens), 8},
      {token_bytes<float>(tokens), 4},        {token_bytes<std::uint16_t>(tokens), 2}};
  const TemporaryFolder folder;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto& [bytes, width] = files[i];
    MegatronIndexFields fields;
    fields.type = static_cast<std::uint8_t>(i + 1);
    fields.sizes = {4, 0, 2};
    fields.pointers = {0, 4 * width, 4 * width};
    fields.documents = {0, 2, 3};
    write_file(folder.file("a.bin"), bytes);
    write_file(folder.file("a.idx"), index_bytes(fields));
    const io::MegatronReader reader(folder.file("a"));
    EXPECT_EQ(all_tokens(reader), tokens) << io::megatron_type_name(reader.type());
    Tokens middle(3);
    reader.copy(2, middle);
    EXPECT_EQ(middle, (Tokens{127, 100, 7}));
  }
}

TEST(Megatron, SequencesFollowTheIndexNotTheFile) {
  const TemporaryFolder folder;
  MegatronIndexFields fields;
  fields.sizes = {2, 0, 3, 2};
  fields.pointers = {12, 0, 0,
                     12};  // the last two tokens, nothing, the first three, again
  fields.documents = {0, 4};
  write_file(folder.file("a.bin"), token_bytes<std::int32_t>({10, 11, 12, 20, 21}));
  write_file(folder.file("a.idx"), index_bytes(fields));
  const io::MegatronReader reader(folder.file("a.bin"));
  const Tokens expected = {20, 21, 10, 11, 12, 20, 21};
  EXPECT_EQ(all_tokens(reader), expected);
  for (std::int64_t first = 0; first < 7; ++first) {
    for (std::int64_t count = 0; count <= 7 - first; ++count) {
      Tokens part(static_cast<std::size_t>(count));
      reader.copy(first, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + first));
    }
  }
}

TEST(Megatron, SamplesAreCutAcrossDocuments) {
  const auto data = io::open_token_data(
      megatron_config(PLEAT_TESTS_DIR "/data/megatron/uint16"), 8, 50000, 1);
  const MegatronReference reference(50000);
  ASSERT_EQ(data->training_samples(),
            static_cast<std::int64_t>(reference.tokens.size() - 1) / 8);
  for (std::int64_t i = 0; i < data->training_samples(); ++i) {
    const auto begin = reference.tokens.begin() + 8 * i;
    EXPECT_EQ(training_sample(*data, i, 8), Tokens(begin, begin + 9));
  }
  expect_input_error("PL0504", {"uint16", "model.vocab = 20000"}, [] {
    io::open_token_data(megatron_config(PLEAT_TESTS_DIR "/data/megatron/uint16"), 8,
                        20000, 1);
  });
}

class BrokenMegatron : public testing::Test {
 protected:
  BrokenMegatron() {
    fields_.sizes = {3, 2};
    fields_.pointers = {0, 12};
    fields_.documents = {0, 1, 2};
  }
  void expect(const std::string& id, const std::vector<std::string>& parts) {
    write_file(folder_.file("a.idx"), index_.empty() ? index_bytes(fields_) : index_);
    write_file(folder_.file("a.bin"), bin_);
    expect_input_error(id, parts, [&] { io::MegatronReader reader(folder_.file("a")); });
  }
  TemporaryFolder folder_;
  MegatronIndexFields fields_;
  std::string index_;
  std::string bin_ = token_bytes<std::int32_t>({1, 2, 3, 4, 5});
};

TEST_F(BrokenMegatron, MissingFiles) {
  expect_input_error("PL0501", {"a.idx"},
                     [&] { io::MegatronReader reader(folder_.file("a")); });
  write_file(folder_.file("a.idx"), index_bytes(fields_));
  expect_input_error("PL0501", {"a.bin"},
                     [&] { io::MegatronReader reader(folder_.file("a")); });
}
TEST_F(BrokenMegatron, Magic) {
  index_ = "TNTIDX" + std::string(100, '\0');
  expect("PL0505", {"a.idx", "MMIDIDX"});
}
TEST_F(BrokenMegatron, Version) {
  fields_.version = 2;
  expect("PL0505", {"version 2, expected 1"});
}
TEST_F(BrokenMegatron, TokenType) {
  fields_.type = 9;
  expect("PL0505", {"token type 9"});
}
TEST_F(BrokenMegatron, TruncatedIndex) {
  index_ = index_bytes(fields_);
  index_.pop_back();
  expect("PL0505", {"truncated", "2 sequences and 3 document"});
}
TEST_F(BrokenMegatron, TruncatedTokens) {
  bin_.pop_back();
  expect("PL0506", {"a.bin", "19 bytes", "sequence 1", "8 bytes", "byte 12"});
}
TEST_F(BrokenMegatron, TokensOfAnotherIndex) {
  bin_ += "1234";
  expect("PL0506", {"24 bytes", "describes 20"});
}
TEST_F(BrokenMegatron, PointersOutside) {
  fields_.pointers = {0, std::int64_t{1} << 62};
  expect("PL0506", {"sequence 1"});
  fields_.pointers = {-4, 12};
  expect("PL0505", {"sequence 0", "-4"});
}
TEST_F(BrokenMegatron, NegativeSize) {
  fields_.sizes = {3, -2};
  expect("PL0505", {"sequence 1", "-2"});
}
TEST_F(BrokenMegatron, DocumentTable) {
  for (const std::vector<std::int64_t>& table :
       {std::vector<std::int64_t>{}, {0}, {1, 2}, {0, 2, 1}, {0, 3}, {0, 2, 1, 2}}) {
    fields_.documents = table;
    expect("PL0505", {"document table"});
  }
}
TEST_F(BrokenMegatron, EmptyFiles) {
  write_file(folder_.file("a.bin"), "");
  write_file(folder_.file("a.idx"), "");
  expect_input_error("PL0502", {"a.idx"},
                     [&] { io::MegatronReader reader(folder_.file("a")); });
  fields_ = {};
  fields_.documents = {0};
  write_file(folder_.file("a.idx"), index_bytes(fields_));
  expect_input_error("PL0502", {"empty"}, [&] {
    io::open_token_data(megatron_config(folder_.file("a")), 4, 10, 1);
  });
}
TEST_F(BrokenMegatron, NegativeAndFractionalTokens) {
  bin_ = token_bytes<std::int32_t>({1, 2, -3, 4, 5});
  write_file(folder_.file("a.idx"), index_bytes(fields_));
  write_file(folder_.file("a.bin"), bin_);
  const auto open = [&] {
    io::open_token_data(megatron_config(folder_.file("a")), 4, 10, 1);
  };
  expect_input_error("PL0504", {"token -3", "position 2"}, open);
  fields_.type = 7;
  write_file(folder_.file("a.idx"), index_bytes(fields_));
  bin_.clear();
  for (int i = 0; i < 5; ++i) put(bin_, 0.5F);
  write_file(folder_.file("a.bin"), bin_);
  expect_input_error("PL0504", {".bin'", "0.5", "at byte "}, open);
}

TEST(MegatronWriter, AnUnfinishedWriterLeavesNothing) {
  const TemporaryFolder folder;
  {
    io::MegatronWriter writer(folder.file("out"), io::MegatronType::kUint16);
    writer.append(Tokens{1, 2, 3});
    expect_input_error("PL0504", {"70000"}, [&] { writer.append(Tokens{70000}); });
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.file("")));
}

TEST(MegatronWriter, AnUnwritableFolderIsBadInput) {
  const TemporaryFolder folder;
  expect_input_error("PL0515", {"absent"}, [&] {
    io::MegatronWriter writer(folder.file("absent/out"), io::MegatronType::kInt32);
  });
}

}  // namespace
}  // namespace pleat::test
