// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "files/support.hpp"
#include "pleat/io/hdf5.hpp"
#include "pleat/io/safetensors.hpp"

namespace pleat::io {
namespace {

std::vector<std::byte> random_bytes(std::int64_t count, std::uint64_t seed) {
  test::Dice dice(seed);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(dice.below(256));
  return bytes;
}

std::vector<SafetensorsEntry> mixed_tensors() {
  return {{.name = "a.half", .type = ElementType::kBf16, .shape = {3, 5}},
          {.name = "b.wide", .type = ElementType::kF64, .shape = {2, 3}},
          {.name = "c \"quoted\"", .type = ElementType::kF32, .shape = {}},
          {.name = "d.empty", .type = ElementType::kF32, .shape = {0, 4}},
          {.name = "e.half", .type = ElementType::kF16, .shape = {7}}};
}

std::int64_t bytes_of(const SafetensorsEntry& entry) {
  return tensor::element_count(entry.shape) *
         static_cast<std::int64_t>(element_size(entry.type));
}

void write_mixed(const std::string& folder, std::int64_t shard_bytes) {
  SafetensorsWriter writer(folder, mixed_tensors(), shard_bytes);
  std::uint64_t seed = 0;
  for (const SafetensorsEntry& entry : mixed_tensors()) {
    writer.write(entry.name, random_bytes(bytes_of(entry), seed++));
  }
  writer.finish();
}

void expect_mixed(const std::string& path) {
  const SafetensorsReader reader(path);
  EXPECT_EQ(reader.entries().size(), 5U);
  std::uint64_t seed = 0;
  for (const SafetensorsEntry& expected : mixed_tensors()) {
    const SafetensorsEntry& entry = reader.at(expected.name);
    EXPECT_EQ(entry.type, expected.type);
    EXPECT_EQ(entry.shape, expected.shape);
    EXPECT_EQ(entry.begin % static_cast<std::int64_t>(element_size(entry.type)), 0);
    EXPECT_EQ(reader.read_raw(entry), random_bytes(bytes_of(expected), seed++));
  }
}

TEST(Safetensors, AllMissingShardsAreNamed) {
  const test::TemporaryFolder folder;
  write_mixed(folder.path(), 8);  // the widest first, the empty one with the one before
  std::filesystem::remove(folder / "model-00001-of-00004.safetensors");
  std::filesystem::remove(folder / "model-00002-of-00004.safetensors");
  using testing::HasSubstr;
  EXPECT_THAT(
      test::message_of<InputError>([&] { SafetensorsReader reader(folder.path()); }),
      testing::AllOf(
          HasSubstr("PL0404"), HasSubstr("model.safetensors.index.json' lists files"),
          HasSubstr("2 of 2:\n  'model-00001-of-00004.safetensors' with 1 tensor: "
                    "'b.wide'\n"),
          HasSubstr("\n  'model-00002-of-00004.safetensors' with 2 tensors: '"),
          HasSubstr("HINT: download them")));
}

TEST(Safetensors, RoundTripInOneFile) {
  const test::TemporaryFolder folder;
  write_mixed(folder.path(), 1 << 20);
  expect_mixed(folder.path());
  expect_mixed(folder / "model.safetensors");
  EXPECT_EQ(SafetensorsReader(folder.path()).metadata().at("format"), "pt");
  std::uint64_t length = 0;
  std::memcpy(&length, test::read_file(folder / "model.safetensors").data(), 8);
  EXPECT_EQ(length % 8, 0U);
}

TEST(Safetensors, RoundTripInShards) {
  const test::TemporaryFolder folder;
  write_mixed(folder.path(), 40);
  expect_mixed(folder.path());
  EXPECT_TRUE(std::filesystem::exists(folder / "model-00001-of-00003.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "model-00003-of-00003.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "model.safetensors"));
}

TEST(Safetensors, SameTensorsGiveTheSameBytes) {
  const test::TemporaryFolder one;
  const test::TemporaryFolder two;
  write_mixed(one.path(), 40);
  write_mixed(two.path(), 40);
  for (const char* name :
       {"model-00001-of-00003.safetensors", "model.safetensors.index.json"}) {
    EXPECT_EQ(test::read_file(one / name), test::read_file(two / name));
  }
}

// The table of contents as golden.h5 has it: a gradient for each weight, of its shape.
TEST(Safetensors, ReadsWhatTransformersWrote) {
  for (const std::string& name : test::golden_cases()) {
    const SafetensorsReader reader(test::golden(name));
    const Hdf5File file = Hdf5File::open_read(test::golden(name + "/golden.h5"));
    const Hdf5Group gradients = file.root().group("grads");
    EXPECT_EQ(reader.entries().size(), gradients.children().size());
    for (const std::string& tensor : gradients.children()) {
      ASSERT_TRUE(reader.contains(tensor)) << tensor;
      EXPECT_EQ(reader.at(tensor).shape, gradients.dataset(tensor).shape());
    }
  }
}

TEST(Safetensors, DecodesTheGoldenEmbedding) {
  const SafetensorsReader reader(test::golden("mixtral-tiny"));
  const SafetensorsEntry& entry = reader.at("model.embed_tokens.weight");
  EXPECT_EQ(entry.type, ElementType::kBf16);
  std::vector<double> embedding_VD(256 * 64);
  reader.read<double>(entry, embedding_VD);
  const Hdf5File file = Hdf5File::open_read(test::golden("mixtral-tiny/golden.h5"));
  const auto tokens = file.root().dataset("inputs/input_ids").read_all<std::int64_t>();
  const auto embedded_SD = file.root().dataset("debug/embed").read_all<double>();
  for (std::size_t i = 0; i < embedded_SD.size(); ++i) {
    const auto row = static_cast<std::size_t>(tokens[i / 64]);
    ASSERT_EQ(embedding_VD[row * 64 + i % 64], embedded_SD[i]) << i;
  }
}

}  // namespace
}  // namespace pleat::io
