// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Training in bf16 over the ranks of the job: every mapping against one rank, and one
/// rank against fp32.

#include <cmath>

#include <gtest/gtest.h>

#include "mappings.hpp"
#include "pleat/comm/communicator.hpp"
#include "pleat/io/checksum.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/grid_choice.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

/// Of losses and norms of a few steps: partial sums over ranks are rounded, and a token between
/// two experts may go to either.
constexpr double kTolerance = 8.0 * Bf16::kRoundoff;

struct Course {
  std::vector<double> losses, norms;
  std::uint64_t checksum = 0;  ///< of this rank's master weights
};

template <class T>
Course train(const train::RunConfig& config, const comm::Grid& grid, const io::TokenData& data,
             bool same_samples = false) {
  train::Engine<T> engine(config, grid);
  engine.initialise();
  Course course;
  for (std::int64_t step = 1; step <= config.run.steps; ++step) {
    const std::int64_t first = same_samples ? 0 : (step - 1) * config.batch.global;
    const train::StepResult result = engine.train_step(step, config.optimizer.lr, data, first);
    course.losses.push_back(result.losses.total());
    course.norms.push_back(result.gradient_norm);
  }
  for (std::size_t b = 0; b < engine.store().layout().buckets().size(); ++b) {
    const auto shard = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(),
                                                           engine.store().weight_shard(b));
    using M = Master<T>;
    course.checksum += io::content_checksum<M>(std::span<const M>(shard.data(), shard.size()));
  }
  return course;
}

train::RunConfig in_bf16(train::RunConfig config) {
  config.precision.compute = train::Precision::kBf16;
  return config;
}

int ranks_of_world() { return comm::make_mpi_communicator(world())->size(); }

Course on_one_rank(const train::RunConfig& config, const io::TokenData& data) {
  train::RunConfig alone = config;
  alone.parallel = {};
  return train<Bf16>(alone, comm::Grid(), data);
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], kTolerance * std::abs(expected[i]))
        << what << ", step " << i + 1;
  }
}

void expect_mappings(const train::RunConfig& config) {
  const RaggedTokens data(config.model.vocab, config.run.seed);
  const Course expected = on_one_rank(config, data);
  const int ranks = ranks_of_world();
  for (const train::RunConfig& mapping : all_mappings(config, ranks)) {
    const comm::Grid grid(world(), train::grid_shape_of(mapping, ranks));
    const Course first = train<Bf16>(mapping, grid, data);
    expect_near(first.losses, expected.losses, "loss: " + mapping_text(mapping, ranks));
    expect_near(first.norms, expected.norms, "norm: " + mapping_text(mapping, ranks));
    const Course again = train<Bf16>(mapping, grid, data);
    EXPECT_EQ(first.losses, again.losses) << mapping_text(mapping, ranks);
    EXPECT_EQ(first.checksum, again.checksum) << mapping_text(mapping, ranks);
  }
}

TEST(Bf16Training, EveryMappingOfASmallMixtral) { expect_mappings(in_bf16(small_mixtral())); }

TEST(Bf16Training, EveryMappingOfASmallQwen2Moe) {
  expect_mappings(in_bf16(small_qwen2_moe()));
}

// A few samples learnt by heart: bf16 must fall as fp32 does. With weights that were themselves
// rounded, updates below half a unit in the last place would be lost.
TEST(Bf16Training, FallsLikeFp32) {
  train::RunConfig config = small_mixtral();
  config.run.steps = 60;
  config.optimizer.lr = 3.0e-3;
  const RaggedTokens data(config.model.vocab, config.run.seed);
  const comm::Grid alone;
  const Course single = train<float>(config, alone, data, true);
  const Course half = train<Bf16>(in_bf16(config), alone, data, true);
  EXPECT_LT(single.losses.back(), 0.5 * single.losses.front());
  EXPECT_NEAR(half.losses.back(), single.losses.back(), 0.05 * single.losses.back());
}

}  // namespace
}  // namespace pleat::test
