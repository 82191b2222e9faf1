// SPDX-License-Identifier: Apache-2.0
// Broken token files, made with a fixed seed: each is either read or refused with an
// InputError, and what is read lies within the vocabulary.
#include <random>

#include <mpi.h>

#include "data_test.hpp"
#include "megatron_bytes.hpp"
#include "pleat/io/hdf5.hpp"
#include "pleat/io/token_convert.hpp"

namespace pleat::test {
namespace {

using Random = std::mt19937_64;  // the same numbers on every platform

std::size_t below(Random& random, std::size_t bound) { return random() % bound; }

/// Damages bytes somewhere: flips, extreme values, cuts, insertions, repetitions.
void damage(Random& random, std::string& bytes) {
  const std::size_t strokes = 1 + below(random, 4);
  for (std::size_t i = 0; i < strokes && !bytes.empty(); ++i) {
    const std::size_t at = below(random, bytes.size());
    switch (below(random, 6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(random, 8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(at, 1 + below(random, 12), static_cast<char>(random()));
        break;
      case 4:
        bytes.erase(at, 1 + below(random, 12));
        break;
      default: {
        // A word of the kind that breaks arithmetic on sizes.
        constexpr std::uint64_t kWords[] = {0,
                                            1,
                                            0x7fffffff,
                                            0x80000000,
                                            0xffffffff,
                                            0x7fffffffffffffff,
                                            0x8000000000000000,
                                            ~0ULL};
        std::string word;
        put(word, kWords[below(random, std::size(kWords))]);
        bytes.replace(at, word.size(), word);
      }
    }
  }
}

/// Reads all that opens; anything but an InputError escapes and fails the test.
/// \return whether it was accepted
bool survives(const io::DataConfig& config, std::int64_t sequence, std::int64_t vocab) {
  try {
    const auto data = io::open_token_data(config, sequence, vocab, 1);
    const io::HostBatch batch = make_batch(1, sequence);
    const std::int64_t samples = std::min<std::int64_t>(data->training_samples(), 20);
    for (std::int64_t i = 0; i < samples; ++i) {
      data->training_batch(i, batch);
      for (const std::int64_t token : row_tokens(batch, 0)) {
        EXPECT_TRUE(token >= 0 && token < vocab);
      }
    }
    return true;
  } catch (const InputError&) {
    return false;
  }
}

io::DataConfig fuzz_config(io::DataFormat format, const std::string& path) {
  io::DataConfig config;
  config.format = format;
  config.paths = {path};
  return config;
}

MegatronIndexFields some_index(Random& random, std::string& bin) {
  MegatronIndexFields fields;
  fields.type = static_cast<std::uint8_t>(1 + below(random, 8));
  constexpr std::int64_t kWidths[] = {0, 1, 1, 2, 4, 8, 8, 4, 2};
  const std::int64_t width = kWidths[fields.type];
  fields.documents = {0};
  std::int64_t pointer = 0;
  const std::size_t sequences = below(random, 6);
  for (std::size_t s = 0; s < sequences; ++s) {
    const auto size = static_cast<std::int32_t>(below(random, 12));
    fields.sizes.push_back(size);
    fields.pointers.push_back(pointer);
    pointer += size * width;
    if (below(random, 2) == 0)
      fields.documents.push_back(static_cast<std::int64_t>(s) + 1);
  }
  if (fields.documents.back() != static_cast<std::int64_t>(sequences)) {
    fields.documents.push_back(static_cast<std::int64_t>(sequences));
  }
  for (std::int64_t i = 0; i < pointer; ++i) bin.push_back(static_cast<char>(i % 5));
  return fields;
}

TEST(TokenFuzz, MegatronPairs) {
  const TemporaryFolder folder;
  const auto config = fuzz_config(io::DataFormat::kMegatron, folder.file("a"));
  Random random(20240701);
  int accepted = 0;
  constexpr int kFiles = 6000;
  for (int i = 0; i < kFiles; ++i) {
    std::string bin;
    std::string idx = index_bytes(some_index(random, bin));
    if (below(random, 4) != 0) damage(random, idx);
    if (below(random, 4) == 0) damage(random, bin);
    write_file(folder.file("a.idx"), idx);
    write_file(folder.file("a.bin"), bin);
    SCOPED_TRACE(fmt::format("file {}", i));
    accepted += survives(config, 3, 100) ? 1 : 0;
  }
  // Both ways must be taken, else the damage is too weak or too strong to test anything.
  EXPECT_GT(accepted, kFiles / 50);
  EXPECT_LT(accepted, kFiles / 2);
}

TEST(TokenFuzz, MegatronIndexOfRandomBytes) {
  const TemporaryFolder folder;
  const auto config = fuzz_config(io::DataFormat::kMegatron, folder.file("a"));
  Random random(7);
  write_file(folder.file("a.bin"), std::string(64, '\1'));
  for (int i = 0; i < 500; ++i) {
    std::string idx("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17);
    if (i % 5 == 0) idx.clear();
    const std::size_t size = below(random, 120);
    for (std::size_t b = 0; b < size; ++b) idx.push_back(static_cast<char>(random()));
    write_file(folder.file("a.idx"), idx);
    SCOPED_TRACE(fmt::format("file {}", i));
    EXPECT_FALSE(survives(config, 3, 100));
  }
}

TEST(TokenFuzz, TextFiles) {
  const TemporaryFolder folder;
  const auto config = fuzz_config(io::DataFormat::kText, folder.file("a.txt"));
  Random random(8);
  for (int i = 0; i < 500; ++i) {
    std::string text;
    const std::size_t size = below(random, 40);
    bool small = true;
    for (std::size_t b = 0; b < size; ++b) {
      text.push_back(static_cast<char>(random() % 129));
      // Tokens of the left-out end are never read.
      if (b <= (size - 1) / 5 * 5)
        small = small && static_cast<unsigned char>(text[b]) < 128;
    }
    write_file(folder.file("a.txt"), text);
    EXPECT_EQ(survives(config, 5, 128), size >= 6 && small) << "file " << i;
  }
}

TEST(TokenFuzz, Hdf5Files) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.h5");
  auto file = io::Hdf5File::create(path, MPI_COMM_SELF);
  {
    auto root = file.root();
    root.write_dataset<std::int32_t>("tokens", {6, 4}, std::vector<std::int32_t>(24, 1));
    root.write_dataset<std::int32_t>("mask", {6, 3}, std::vector<std::int32_t>(18, 1));
    root.write_dataset<std::int32_t>("lengths", {6}, std::vector<std::int32_t>(6, 4));
  }
  file.close();
  const std::string sound = read_file(path);
  io::DataConfig config = fuzz_config(io::DataFormat::kHdf5, path);
  config.loss_mask = "mask";
  config.lengths = "lengths";
  Random random(9);
  int accepted = 0;
  for (int i = 0; i < 800; ++i) {
    std::string bytes = sound;
    damage(random, bytes);
    write_file(path, bytes);
    SCOPED_TRACE(fmt::format("file {}", i));
    accepted += survives(config, 3, 100) ? 1 : 0;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 700);
}

}  // namespace
}  // namespace pleat::test
