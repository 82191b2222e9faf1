// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Training in bf16 over the ranks of the job: every mapping against one rank, and
/// one rank against fp32.

#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "mappings.hpp"
#include "pleat/comm/communicator.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/grid_choice.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

/// Of losses and norms of a few steps: partial sums over ranks are rounded, and a token
/// between two experts may go to either.
constexpr double kLossTolerance = 2.0 * Bf16::kRoundoff;
constexpr double kNormTolerance = 16.0 * Bf16::kRoundoff;

struct Course {
  std::vector<double> losses, norms;
  std::vector<double> weights;  ///< this rank's shards, as the optimizer keeps them
};

template <class T>
Course train(const train::RunConfig& config, const comm::Grid& grid,
             const io::TokenData& data, bool same_samples = false) {
  train::Engine<T> engine(config, grid);
  engine.initialise();
  Course course;
  for (std::int64_t step = 1; step <= config.run.steps; ++step) {
    const std::int64_t first = same_samples ? 0 : (step - 1) * config.batch.global;
    const train::StepResult result =
        engine.train_step(step, config.optimizer.lr, data, first);
    course.losses.push_back(result.losses.total());
    course.norms.push_back(result.gradient_norm);
  }
  for (std::size_t b = 0; b < engine.store().layout().buckets().size(); ++b) {
    const auto shard = Kokkos::create_mirror_view_and_copy(
        Kokkos::HostSpace(), engine.store().weight_shard(b));
    for (std::size_t i = 0; i < shard.size(); ++i) course.weights.push_back(shard(i));
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

/// The largest relative difference of any step; infinite where there is no number.
double distance(const std::vector<double>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return HUGE_VAL;
  double largest = 0.0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(actual[i] - expected[i]) / std::abs(expected[i]);
    largest = std::isnan(difference) ? HUGE_VAL : std::max(largest, difference);
  }
  return largest;
}

void expect_mappings(const train::RunConfig& config) {
  const RaggedTokens data(config.model.vocab, config.run.seed);
  const Course expected = on_one_rank(config, data);
  const int ranks = ranks_of_world();
  double largest_loss = 0.0, largest_norm = 0.0;
  std::size_t number = 0;
  for (const train::RunConfig& mapping : all_mappings(config, ranks)) {
    const comm::Grid grid(world(), train::grid_shape_of(mapping, ranks));
    const Course first = train<Bf16>(mapping, grid, data);
    const double loss = distance(first.losses, expected.losses);
    const double norm = distance(first.norms, expected.norms);
    EXPECT_LE(loss, kLossTolerance) << mapping_text(mapping, ranks);
    EXPECT_LE(norm, kNormTolerance) << mapping_text(mapping, ranks);
    largest_loss = std::max(largest_loss, loss);
    largest_norm = std::max(largest_norm, norm);
    if (number++ % 4 != 0) continue;
    const Course again = train<Bf16>(mapping, grid, data);
    EXPECT_EQ(first.losses, again.losses) << mapping_text(mapping, ranks);
    EXPECT_EQ(first.weights, again.weights) << mapping_text(mapping, ranks);
  }
  testing::Test::RecordProperty("largest_loss_difference", std::to_string(largest_loss));
  testing::Test::RecordProperty("largest_norm_difference", std::to_string(largest_norm));
}

TEST(Bf16Training, EveryMappingOfASmallMixtral) {
  expect_mappings(in_bf16(small_mixtral()));
}

TEST(Bf16Training, EveryMappingOfASmallQwen2Moe) {
  expect_mappings(in_bf16(small_qwen2_moe()));
}

// A few samples learnt by heart: bf16 must fall as fp32 does.
TEST(Bf16Training, FallsLikeFp32) {
  if (ranks_of_world() > 1) return;  // needs one
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

double movement(const Course& end, const Course& start, const Course& subtracted) {
  double sum = 0.0;
  for (std::size_t i = 0; i < end.weights.size(); ++i) {
    const double moved = end.weights[i] - start.weights[i] - subtracted.weights[i];
    sum += moved * moved;
  }
  return std::sqrt(sum);
}

// Each update is far below half a unit in the last place of most weights, which are
// around 0.2: weights without masters would hardly move.
TEST(Bf16Training, MastersKeepSmallUpdates) {
  if (ranks_of_world() > 1) return;  // needs one
  train::RunConfig config = small_mixtral();
  config.optimizer.lr = 1.0e-5;
  config.run.steps = 0;
  const RaggedTokens data(config.model.vocab, config.run.seed);
  const comm::Grid alone;
  const Course start = train<float>(config, alone, data, true);
  config.run.steps = 12;
  Course single = train<float>(config, alone, data, true);
  const Course half = train<Bf16>(in_bf16(config), alone, data, true);
  ASSERT_EQ(half.weights.size(), start.weights.size());
  for (std::size_t i = 0; i < start.weights.size(); ++i)
    single.weights[i] -= start.weights[i];
  const Course nothing{
      .losses = {}, .norms = {}, .weights = std::vector<double>(start.weights.size())};
  const double moved = movement(half, start, nothing);
  EXPECT_GT(moved, 0.0);
  EXPECT_LT(movement(half, start, single), 0.2 * moved);
}

}  // namespace
}  // namespace pleat::test
