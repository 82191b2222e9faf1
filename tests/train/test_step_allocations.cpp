// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief What a step of training takes from the heap once the first steps are done. Nothing that
/// grows with tokens, experts or parameters: Kokkos makes a string of every kernel's name, and
/// exchanges have small lists by rank, so only blocks beyond those are counted. What a library in C
/// takes is not counted: MPICH takes memory for each sum.

#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "equivalence/mappings.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/grid_choice.hpp"
#include "support/world.hpp"

namespace {

/// Longer than any name, less than a list with an entry for each expert or token.
constexpr std::size_t kLarge = 1024;

std::atomic<bool> counting = false;
std::atomic<int> large_blocks = 0;
std::atomic<std::size_t> largest_block = 0;

void count_large(std::size_t bytes) {
  ++large_blocks;
  if (bytes > largest_block) largest_block = bytes;
}

// Not inlined, nor the next one: GCC would see new end in free and warn.
[[gnu::noinline]] void* take(std::size_t bytes, std::size_t alignment) {
  if (counting && bytes >= kLarge) count_large(bytes);
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) throw std::bad_alloc();
  return memory;
}

[[gnu::noinline]] void give_back(void* memory) { std::free(memory); }

}  // namespace

// In place of the library's: std::vector's and Kokkos' memory comes through these.
void* operator new(std::size_t bytes) { return take(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  give_back(memory);
}

namespace pleat::test {
namespace {

/// The same 512 tokens at each step, so that the sizes of steps do not differ by more than the
/// little by which the router changes its mind.
class OneSample final : public io::TokenData {
 public:
  std::int64_t training_samples() const override { return 1; }
  std::int64_t validation_samples() const override { return 1; }
  void training_batch(std::int64_t, const io::HostBatch& batch) const override {
    for (std::size_t i = 0; i < batch.tokens_BS.size(); ++i) {
      batch.tokens_BS.data()[i] = static_cast<std::int32_t>(7 * i % 31);
      batch.labels_BS.data()[i] = static_cast<std::int32_t>(7 * (i + 1) % 31);
      batch.loss_mask_BS.data()[i] = batch.real_BS.data()[i] = 1;
    }
  }
  void validation_batch(std::int64_t first, const io::HostBatch& batch) const override {
    training_batch(first, batch);
  }
  std::string description() const override { return "one sample"; }
};

/// Lists with an entry for each expert are large ones.
train::RunConfig many_experts() {
  train::RunConfig config = small_qwen2_moe();
  config.model.moe.experts = 128;
  config.batch.sequence = 256;
  config.batch.micro = 1;
  config.batch.global = 2;
  return config;
}

template <class Work>
void expect_no_blocks(const Work& work, const std::string& what) {
  large_blocks = 0;
  largest_block = 0;
  counting = true;
  work();
  counting = false;
  EXPECT_EQ(large_blocks, 0) << what << ": the largest of " << largest_block << " bytes";
}

std::int64_t ranks_of_world() { return comm::make_mpi_communicator(world())->size(); }

template <class T>
void expect_no_large_blocks(const train::RunConfig& config) {
  const std::int64_t ranks = ranks_of_world();
  const comm::Grid grid(world(), train::grid_shape_of(config, ranks));
  train::Engine<T> engine(config, grid);
  engine.initialise();
  const OneSample data;
  const auto step = [&](std::int64_t number) {
    engine.train_step(number, 1.0e-6, data, number);
  };
  for (std::int64_t number = 1; number <= 4; ++number) step(number);
  expect_no_blocks(
      [&] {
        for (std::int64_t number = 5; number <= 8; ++number) step(number);
      },
      mapping_text(config, ranks));
}

/// In every precision and way to keep activations.
template <class Map>
void expect_none(const Map& map) {
  train::RunConfig config = many_experts();
  map(config.parallel);
  expect_no_large_blocks<double>(config);
  config.precision.recompute = plan::Recompute::kSelective;
  expect_no_large_blocks<float>(config);
  config.precision.recompute = plan::Recompute::kFull;
  expect_no_large_blocks<Bf16>(config);
}

TEST(StepAllocations, NothingThatGrowsWithTheModel) {
  using Parallel = train::ParallelSection;
  if (ranks_of_world() == 1) return expect_none([](Parallel&) {});
  expect_none([](Parallel& x) { x.tensor = 2; });
  expect_none([](Parallel& x) { x.context = 2; });
  expect_none([](Parallel& x) { x.pipeline = 2; });
  expect_none([](Parallel& x) { x.expert = 2; });
  expect_none([](Parallel& x) {
    x.expert = 2;
    x.dispatcher = plan::DispatcherKind::kAllGather;
  });
  expect_none([](Parallel& x) { x.expert_tensor = 2; });
  expect_none([](Parallel& x) { x.sharding = plan::Sharding::kParameters; });
}

TEST(StepAllocations, ReadingSamplesTakesNothing) {
  constexpr std::int64_t kSequence = 4096;
  io::DataConfig config;
  config.format = io::DataFormat::kSynthetic;
  const auto data = io::open_token_data(config, kSequence, 97, 1);
  const HostView<std::int32_t, 2> tokens_BS("tokens", 2, kSequence);
  const HostView<std::int32_t, 2> labels_BS("labels", 2, kSequence);
  const HostView<std::uint8_t, 2> loss_mask_BS("loss mask", 2, kSequence);
  const HostView<std::uint8_t, 2> real_BS("real", 2, kSequence);
  const io::HostBatch batch{tokens_BS, labels_BS, loss_mask_BS, real_BS};
  data->training_batch(0, batch);
  expect_no_blocks([&] { data->training_batch(2, batch); }, "a batch of samples");
}

}  // namespace
}  // namespace pleat::test
