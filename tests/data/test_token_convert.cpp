// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include "data_test.hpp"
#include "pleat/io/hdf5.hpp"
#include "pleat/io/megatron.hpp"
#include "pleat/io/token_convert.hpp"

namespace pleat::test {
namespace {

class TokenConvert : public testing::Test {
 protected:
  std::string convert(const std::string& from, const std::string& to) const {
    return io::convert_token_file(from, to, conversion_);
  }
  /// All samples in file order, one after another.
  static std::vector<std::int64_t> samples(const io::DataConfig& config) {
    const auto data = io::open_token_data(config, 16, 256, 1);
    const io::HostBatch batch = make_batch(data->training_samples(), 16);
    data->training_batch(0, batch);
    std::vector<std::int64_t> tokens;
    for (std::size_t row = 0; row < batch.tokens_BS.extent(0); ++row) {
      const auto sample = row_tokens(batch, row);
      tokens.insert(tokens.end(), sample.begin(), sample.end());
    }
    return tokens;
  }
  static io::DataConfig reading(const std::string& path) {
    io::DataConfig config;
    config.format = io::detect_token_format(path);
    config.paths = {path};
    config.shuffle = false;
    return config;
  }
  io::TokenConversion conversion_{
      .tokenizer = "bytes", .dataset = "tokens", .sequence = 16};
  TemporaryFolder folder_;
};

// One text through all formats: training sees the same samples from each.
TEST_F(TokenConvert, AllFormatsGiveTheSameSamples) {
  const std::string text =
      read_file(PLEAT_SOURCE_DIR "/inputs/data/pride_and_prejudice.txt")
          .substr(0, 100000);
  write_file(folder_.file("a.txt"), text);
  const auto expected = samples(reading(folder_.file("a.txt")));
  ASSERT_EQ(expected.size(), 99999U / 16 * 17);
  convert(folder_.file("a.txt"), folder_.file("b.bin"));
  EXPECT_EQ(samples(reading(folder_.file("b"))), expected);
  convert(folder_.file("a.txt"), folder_.file("c.h5"));
  EXPECT_EQ(samples(reading(folder_.file("c.h5"))), expected);
  convert(folder_.file("b.idx"), folder_.file("d.hdf5"));
  EXPECT_EQ(samples(reading(folder_.file("d.hdf5"))), expected);
  convert(folder_.file("c.h5"), folder_.file("e.bin"));
  EXPECT_EQ(samples(reading(folder_.file("e.bin"))), expected);

  const io::TokenFileInfo info = io::inspect_token_file(folder_.file("e"));
  EXPECT_EQ(info.tokens, 99999 / 16 * 16 + 1) << "joined again, without the dropped end";
  EXPECT_EQ(info.documents, 1);
}

TEST_F(TokenConvert, RowsThatDoNotOverlapBecomeDocuments) {
  {
    auto file = io::Hdf5File::create(folder_.file("rows.h5"), MPI_COMM_SELF);
    {
      const std::vector<std::int32_t> values = {1, 2, 3, 4, 5, 6, 7, 80000, 9};
      auto root = file.root();
      root.write_dataset<std::int32_t>("tokens", {3, 3}, values);
    }
    file.close();
  }
  conversion_.sequence = 0;
  EXPECT_THAT(convert(folder_.file("rows.h5"), folder_.file("rows.bin")),
              testing::HasSubstr("9 tokens of int32 in 3 documents"));
  const io::MegatronReader reader(folder_.file("rows"));
  EXPECT_EQ(reader.documents(), 3);
  EXPECT_EQ(reader.sequences(), 3);
  std::vector<std::int64_t> tokens(9);
  reader.copy(0, tokens);
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 80000, 9}));
}

TEST_F(TokenConvert, FilesOfMegatronCoreKeepTheirBytes) {
  for (const std::string name : {"int32", "uint16"}) {
    const std::string source = PLEAT_TESTS_DIR "/data/megatron/" + name;
    convert(source + ".idx", folder_.file(name + ".bin"));
    EXPECT_EQ(read_file(folder_.file(name + ".idx")), read_file(source + ".idx"));
    EXPECT_EQ(read_file(folder_.file(name + ".bin")), read_file(source + ".bin"));
  }
}

TEST_F(TokenConvert, InspectionTellsWhatIsInside) {
  write_file(folder_.file("a.txt"), "hello");
  const io::TokenFileInfo text = io::inspect_token_file(folder_.file("a.txt"));
  EXPECT_EQ(text.tokens, 5);
  EXPECT_EQ(text.smallest, 'e');
  EXPECT_EQ(text.largest, 'o');
  EXPECT_EQ(text.distinct, 4);
  EXPECT_THAT(io::to_text(text), testing::HasSubstr("101 to 111, 4 different"));

  const std::string golden = PLEAT_TESTS_DIR "/golden/mixtral-tiny/trace.h5";
  const io::TokenFileInfo rows = io::inspect_token_file(golden, "trace/tokens");
  EXPECT_EQ(rows.format, io::DataFormat::kHdf5);
  EXPECT_EQ(rows.shape, (std::vector<std::int64_t>{20, 4, 33}));
  EXPECT_EQ(rows.sequences, 80);
  EXPECT_EQ(rows.tokens, 80 * 33);
  EXPECT_LT(rows.largest, 256);
  EXPECT_THAT(io::to_text(rows), testing::HasSubstr("20 x 4 x 33"));

  const io::TokenFileInfo pair =
      io::inspect_token_file(PLEAT_TESTS_DIR "/data/megatron/int32");
  EXPECT_EQ(pair.type, "int32");
  EXPECT_EQ(pair.documents, 5);
  EXPECT_EQ(pair.sequences, 9);
  EXPECT_EQ(pair.tokens, 52);
}

TEST_F(TokenConvert, FormatsAreRecognised) {
  write_file(folder_.file("rows"), std::string("\x89HDF\r\n\x1a\n") + "...");
  write_file(folder_.file("pair.idx"), "");
  write_file(folder_.file("text"), "abc");
  EXPECT_EQ(io::detect_token_format(folder_.file("rows")), io::DataFormat::kHdf5);
  EXPECT_EQ(io::detect_token_format(folder_.file("pair")), io::DataFormat::kMegatron);
  EXPECT_EQ(io::detect_token_format(folder_.file("text")), io::DataFormat::kText);
  EXPECT_EQ(io::detect_token_format("x.bin"), io::DataFormat::kMegatron);
  EXPECT_EQ(io::detect_token_format("x.hdf5"), io::DataFormat::kHdf5);
}

TEST_F(TokenConvert, ImpossibleTargetsAreRefusedAndLeaveNothing) {
  write_file(folder_.file("a.txt"), "some text that is long enough");
  const std::string from = folder_.file("a.txt");
  const auto expect = [&](const std::string& id, const std::string& part,
                          const std::string& source, const std::string& target) {
    expect_input_error(id, {part}, [&] { convert(source, target); });
  };
  expect("PL0515", "format", from, folder_.file("b.json"));
  expect("PL0515", "folder", from, folder_.file("absent/b.bin"));
  expect("PL0515", "itself", folder_.file("b.idx"), folder_.file("b.bin"));
  expect("PL0501", "No such file", folder_.file("c.txt"), folder_.file("b.bin"));
  conversion_.sequence = 29;
  expect("PL0503", "29 tokens", from, folder_.file("b.h5"));
  conversion_.sequence = 0;
  expect("PL0515", "batch.sequence", from, folder_.file("b.h5"));
  write_file(from, "");
  expect("PL0502", "empty", from, folder_.file("b.bin"));
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(folder_.file(""))) {
    ++files;
  }
  EXPECT_EQ(files, 1U);
}

}  // namespace
}  // namespace pleat::test
