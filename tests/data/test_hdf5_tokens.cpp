// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include <mpi.h>

#include "data_test.hpp"
#include "pleat/io/hdf5.hpp"
#include "pleat/io/hdf5_rows.hpp"
#include "pleat/io/sampling.hpp"

namespace pleat::test {
namespace {

using Tokens = std::vector<std::int64_t>;
constexpr const char* kGolden = PLEAT_TESTS_DIR "/golden/mixtral-tiny/trace.h5";

io::DataConfig hdf5_config(const std::string& path,
                           const std::string& dataset = "tokens") {
  io::DataConfig config;
  config.format = io::DataFormat::kHdf5;
  config.paths = {path};
  config.dataset = dataset;
  config.shuffle = false;
  return config;
}

// The golden file has the batch of step 0 twice: as the first four rows of trace/tokens
// and, in golden.h5, as inputs and labels. Both were written by h5py.
TEST(Hdf5Tokens, GoldenTokensComeInFileOrder) {
  const auto data = io::open_token_data(hdf5_config(kGolden, "trace/tokens"), 32, 256, 1);
  EXPECT_EQ(data->training_samples(), 80);
  const io::HostBatch batch = make_batch(4, 32);
  data->training_batch(0, batch);
  const auto golden =
      io::Hdf5File::open_read(PLEAT_TESTS_DIR "/golden/mixtral-tiny/golden.h5");
  const auto inputs = golden.root().dataset("inputs/input_ids").read_all<std::int64_t>();
  const auto labels = golden.root().dataset("inputs/labels").read_all<std::int64_t>();
  ASSERT_EQ(inputs.size(), 128U);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(batch.tokens_BS(i / 32, i % 32), inputs[i]);
    EXPECT_EQ(batch.labels_BS(i / 32, i % 32), labels[i]);
  }
  const auto trace = io::Hdf5File::open_read(kGolden);
  const auto all = trace.root().dataset("trace/tokens").read_all<std::int64_t>();
  for (std::int64_t i = 0; i < 80; ++i) {
    const auto begin = all.begin() + 33 * i;
    EXPECT_EQ(training_sample(*data, i, 32), Tokens(begin, begin + 33));
  }
}

// tests/data/hdf5/types.h5 was written by h5py 3: token k of a dataset is 37 k mod 100.
constexpr const char* kTypes = PLEAT_TESTS_DIR "/data/hdf5/types.h5";

TEST(Hdf5Tokens, AllIntegerTypesOfH5py) {
  for (const std::string name : {"i1", "u1", "little_i2", "big_i2", "little_u2", "big_i4",
                                 "little_u4", "little_i8", "big_u8", "deflated"}) {
    io::DataConfig config = hdf5_config(kTypes, "tokens/" + name);
    config.loss_mask = "mask";  // of booleans, false where the token is divisible by 3
    const auto data = io::open_token_data(config, 4, 100, 1);
    ASSERT_EQ(data->training_samples(), 6) << name;
    const io::HostBatch batch = make_batch(6, 4);
    data->training_batch(0, batch);
    for (std::size_t b = 0; b < 6; ++b) {
      for (std::size_t s = 0; s < 4; ++s) {
        const auto expected = static_cast<std::int32_t>((5 * b + s) * 37 % 100);
        EXPECT_EQ(batch.tokens_BS(b, s), expected) << name;
        EXPECT_EQ(batch.labels_BS(b, s),
                  static_cast<std::int32_t>((5 * b + s + 1) * 37 % 100));
        EXPECT_EQ(batch.loss_mask_BS(b, s), expected % 3 != 0) << name;
      }
    }
  }
}

TEST(Hdf5Tokens, OddDatasetsOfH5pyAreRefused) {
  const auto open = [](const std::string& name) {
    io::open_token_data(hdf5_config(kTypes, name), 4, 100, 1);
  };
  expect_input_error("PL0509", {"'text'"}, [&] { open("text"); });
  expect_input_error("PL0508", {"'scalar'", "single number"}, [&] { open("scalar"); });
  expect_input_error("PL0507", {"''", "mask, scalar, text"}, [&] { open(""); });
  expect_input_error("PL0302", {"/soft"}, [&] { open("soft"); });
  EXPECT_THROW(open("too_large"), InputError);
}

// tests/data/hdf5/lzf.h5 was written by h5py with compression="lzf", a filter that the
// HDF5 library itself does not have.
TEST(Hdf5Tokens, AMissingFilterIsNamed) {
  const std::string path = PLEAT_TESTS_DIR "/data/hdf5/lzf.h5";
  expect_input_error(
      "PL0314", {"lzf.h5", "tokens", "lzf (number 32000)", "gzip", "HDF5_PLUGIN_PATH"},
      [&] { io::open_token_data(hdf5_config(path), 4, 100, 1); });
}

/// A file with tokens 0, 1, 2, ... modulo 97 and whatever else the test adds.
class Hdf5TokensFile : public testing::Test {
 protected:
  template <class T = std::int32_t>
  void write(const std::string& name, const tensor::Shape& shape,
             const std::vector<T>& values) {
    pending_.push_back([=](io::Hdf5Group& root) {
      root.write_dataset<T>(name, shape, std::span<const T>(values));
    });
  }
  std::string file() {
    auto file = io::Hdf5File::create(path_, MPI_COMM_SELF);
    {
      auto root = file.root();
      for (const auto& write : pending_) write(root);
    }
    file.close();
    return path_;
  }
  static std::vector<std::int32_t> counting(std::int64_t count) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<std::int32_t>(i % 97);
    }
    return values;
  }
  std::unique_ptr<io::TokenData> open(const io::DataConfig& config) const {
    return io::open_token_data(config, 4, 97, 1);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("a.h5");
  std::vector<std::function<void(io::Hdf5Group&)>> pending_;
};

TEST_F(Hdf5TokensFile, LeadingDimensionsFlatten) {
  write("one", {5}, counting(5));
  write("two", {6, 5}, counting(30));
  write("three", {2, 3, 5}, counting(30));
  write("five", {3, 1, 2, 1, 5}, counting(30));
  file();
  for (const std::string name : {"one", "two", "three", "five"}) {
    const auto data = open(hdf5_config(path_, name));
    ASSERT_EQ(data->training_samples(), name == "one" ? 1 : 6);
    for (std::int64_t i = 0; i < data->training_samples(); ++i) {
      Tokens expected(5);
      std::iota(expected.begin(), expected.end(), 5 * i);
      EXPECT_EQ(training_sample(*data, i, 4), expected);
    }
  }
}

TEST_F(Hdf5TokensFile, AnyOrderOfReadingGivesTheSame) {
  const std::int64_t rows = 30000;  // more than are read ahead at once
  write("tokens", {rows / 100, 100, 5}, counting(rows * 5));
  const auto opened = io::Hdf5File::open_read(file());
  const io::Hdf5Rows in_order = io::open_rows(opened, "tokens");
  const io::Hdf5Rows scattered = io::open_rows(opened, "tokens");
  Tokens row(5);
  for (std::int64_t i = 0; i < rows; ++i) {
    in_order.read(i, row);
    ASSERT_EQ(row.front(), 5 * i % 97);
    const std::int64_t far = i * 7919 % rows;
    if (i % 10 != 0) continue;
    scattered.read(far, row);
    ASSERT_EQ(row.back(), (5 * far + 4) % 97);
  }
}

TEST_F(Hdf5TokensFile, MasksAndLengths) {
  write("tokens", {2, 2, 5}, counting(20));
  write("mask", {2, 2, 4},
        std::vector<std::int32_t>{1, 1, 1, 1, 0, 1, 0, 7, 0, 0, 0, 0, 1, 0, 1, 1});
  write("lengths", {2, 2}, std::vector<std::int32_t>{5, 4, 0, 1});
  io::DataConfig config = hdf5_config(file());
  config.loss_mask = "mask";
  config.lengths = "lengths";
  const auto data = open(config);
  const io::HostBatch batch = make_batch(4, 4);
  data->training_batch(0, batch);
  const std::uint8_t loss[4][4] = {
      {1, 1, 1, 1}, {0, 1, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}};
  const std::uint8_t real[4][4] = {
      {1, 1, 1, 1}, {1, 1, 1, 1}, {0, 0, 0, 0}, {1, 0, 0, 0}};
  for (std::size_t b = 0; b < 4; ++b) {
    for (std::size_t s = 0; s < 4; ++s) {
      EXPECT_EQ(batch.loss_mask_BS(b, s), loss[b][s]) << b << ", " << s;
      EXPECT_EQ(batch.real_BS(b, s), real[b][s]) << b << ", " << s;
    }
  }
  EXPECT_EQ(batch.tokens_BS(1, 3), 8);
  EXPECT_EQ(batch.labels_BS(1, 3), 0) << "padding reads as token 0";
}

TEST_F(Hdf5TokensFile, PaddingMayHoldAnything) {
  write("tokens", {1, 5}, std::vector<std::int32_t>{1, 2, 3, -100, 1 << 30});
  write("lengths", {1}, std::vector<std::int32_t>{3});
  io::DataConfig config = hdf5_config(file());
  expect_input_error("PL0504", {"sample 0", "token -100", "position 3"},
                     [&] { open(config); });
  config.lengths = "lengths";
  EXPECT_EQ(training_sample(*open(config), 0, 4), (Tokens{1, 2, 3, 0, 0}));
}

TEST_F(Hdf5TokensFile, SomeTokenToTrainOnMustCarryLoss) {
  const io::HeldOutSplit split(4, 0.25, 1);
  std::vector<std::int32_t> held_out(16);
  held_out[static_cast<std::size_t>(4 * split.held_out_sample(0))] = 1;
  std::vector<std::int32_t> trained(16);
  trained[static_cast<std::size_t>(4 * split.training_sample(2) + 1)] = 1;
  write("tokens", {4, 5}, counting(20));
  write("none", {4, 4}, std::vector<std::int32_t>(16));
  write("held_out", {4, 4}, held_out);
  write("trained", {4, 4}, trained);
  write("lengths", {4}, std::vector<std::int32_t>{1, 0, 1, 1});
  io::DataConfig config = hdf5_config(file());
  config.split = 0.25;
  for (const char* mask : {"none", "held_out"}) {
    config.loss_mask = mask;
    expect_input_error("PL0502", {"3 samples to train on", "loss_mask"},
                       [&] { open(config); });
  }
  config.loss_mask = "trained";
  open(config);
  config.loss_mask = "";
  open(config);
  config.lengths = "lengths";
  expect_input_error("PL0502", {"carries loss"}, [&] { open(config); });
}

TEST_F(Hdf5TokensFile, FaultsAreNamed) {
  write("tokens", {6, 5}, counting(30));
  write("empty", {0, 5}, counting(0));
  write<double>("real", {6, 5}, std::vector<double>(30));
  write("data/wide", {6, 8}, counting(48));
  write("lengths", {6}, std::vector<std::int32_t>{5, 5, 5, 6, 5, 5});
  file();
  const auto expect = [&](const std::string& id, const std::vector<std::string>& parts,
                          const io::DataConfig& config) {
    expect_input_error(id, parts, [&] { open(config); });
  };
  expect("PL0507", {"'text'", "data/wide, empty, lengths, real, tokens"},
         hdf5_config(path_, "text"));
  expect("PL0507", {"'data'"}, hdf5_config(path_, "data"));
  expect("PL0502", {"'empty'"}, hdf5_config(path_, "empty"));
  expect("PL0509", {"'real'", "float64"}, hdf5_config(path_, "real"));
  expect("PL0508", {"is 8", "batch.sequence + 1 is 5", "batch.sequence = 7"},
         hdf5_config(path_, "data/wide"));
  io::DataConfig config = hdf5_config(path_);
  config.loss_mask = "tokens";
  expect("PL0510", {"6 x 5, expected 6 x 4"}, config);
  config.loss_mask = "";
  config.lengths = "tokens";
  expect("PL0510", {"30, expected 6"}, config);
  config.lengths = "lengths";
  expect("PL0510", {"length 6 of sample 3"}, config);
  config.lengths = "absent";
  expect("PL0507", {"'absent'"}, config);
}

TEST_F(Hdf5TokensFile, OfManyDatasetsTheFirstAreNamed) {
  for (int i = 1; i <= 8; ++i) write(fmt::format("d{:02}", i), {1, 5}, counting(5));
  file();
  const auto complaint = [&] {
    try {
      open(hdf5_config(path_, "absent"));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(complaint(), testing::AllOf(testing::HasSubstr("d07, d08\n"),
                                          testing::Not(testing::HasSubstr("more"))));
  for (int i = 9; i <= 30; ++i) write(fmt::format("d{:02}", i), {1, 5}, counting(5));
  file();
  EXPECT_THAT(complaint(), testing::AllOf(testing::HasSubstr("d07, d08, ... and 22 more\n"),
                                          testing::Not(testing::HasSubstr("d09"))));
}

TEST_F(Hdf5TokensFile, WhatIsNoHdf5FileIsRefused) {
  EXPECT_THROW(open(hdf5_config(folder_.file("absent.h5"))), InputError);
  write_file(path_, "");
  EXPECT_THROW(open(hdf5_config(path_)), InputError);
  write_file(path_, "no HDF5 at all");
  EXPECT_THROW(open(hdf5_config(path_)), InputError);
  write("tokens", {6, 5}, counting(30));
  const std::string bytes = read_file(file());
  write_file(path_, bytes.substr(0, bytes.size() / 2));
  EXPECT_THROW(open(hdf5_config(path_)), InputError);
}

}  // namespace
}  // namespace pleat::test
