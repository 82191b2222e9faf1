// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The program accepts exactly the mappings that the rules allow, and the list of
/// mappings that the equivalence tests run is complete. On one rank, whatever the rank
/// count.

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

#include "legality.hpp"
#include "mappings.hpp"
#include "pleat/base/error.hpp"
#include "pleat/train/grid_choice.hpp"

namespace pleat::test {
namespace {

constexpr std::int64_t kRankCounts[] = {1, 2, 3, 4, 6, 8, 16};

bool is_accepted(const train::RunConfig& config, std::int64_t ranks) {
  try {
    train::grid_shape_of(config, ranks);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

/// Another size for each rule.
train::RunConfig awkward() {
  train::RunConfig config = small_qwen2_moe();
  config.batch.sequence = 24;
  config.model.kv_heads = 4;
  config.model.ffn = 42;
  config.model.moe.experts = 6;
  config.model.moe.ffn = 20;
  config.model.moe.shared_ffn = 36;
  return config;
}

/// Degrees that fill the ranks and small ones that may not.
std::vector<std::int64_t> degrees_to_try(std::int64_t ranks) {
  std::vector<std::int64_t> degrees;
  for (std::int64_t d = 1; d <= std::max<std::int64_t>(4, ranks); ++d) {
    if (d <= 4 || ranks % d == 0) degrees.push_back(d);
  }
  return degrees;
}

/// How many mappings were tried, and how many of these are legal.
struct Tried {
  int all = 0;
  int legal = 0;
};

void expect_both_kinds(const Tried& tried) {
  EXPECT_GT(tried.legal, 0);
  EXPECT_GT(tried.all, tried.legal);
}

void expect_agreement(const train::RunConfig& config, std::int64_t ranks, Tried& tried) {
  const bool legal = is_legal(config, ranks);
  ASSERT_EQ(is_accepted(config, ranks), legal)
      << mapping_text(config, ranks) << " heads " << config.model.heads << " kv_heads "
      << config.model.kv_heads << " sequence " << config.batch.sequence << " batch "
      << config.batch.micro << " of " << config.batch.global;
  ++tried.all;
  tried.legal += legal ? 1 : 0;
}

void expect_agreement_on_all_degrees(train::RunConfig config, std::int64_t ranks,
                                     Tried& tried) {
  const std::vector<std::int64_t> degrees = degrees_to_try(ranks);
  const std::size_t n = degrees.size();
  for (std::size_t i = 0; i < n * n * n * n * n; ++i) {
    config.parallel.pipeline = degrees[i % n];
    config.parallel.context = degrees[i / n % n];
    config.parallel.tensor = degrees[i / (n * n) % n];
    config.parallel.expert = degrees[i / (n * n * n) % n];
    config.parallel.expert_tensor = degrees[i / (n * n * n * n)];
    ASSERT_NO_FATAL_FAILURE(expect_agreement(config, ranks, tried));
  }
}

TEST(Legality, OfDegrees) {
  for (const train::RunConfig& config : {small_mixtral(), small_qwen2_moe(), awkward()}) {
    for (const std::int64_t ranks : kRankCounts) {
      Tried tried;
      ASSERT_NO_FATAL_FAILURE(
          expect_agreement_on_all_degrees(cut_for(config, ranks), ranks, tried));
      expect_both_kinds(tried);
    }
  }
}

TEST(Legality, OfHeads) {
  Tried tried;
  for (const std::int64_t heads : {4, 6, 12}) {
    for (const std::int64_t kv_heads : {1, 2, 3, 4, 6, 12}) {
      if (heads % kv_heads != 0) continue;
      for (std::int64_t tensor = 1; tensor <= 12; ++tensor) {
        train::RunConfig config = small_mixtral();
        config.batch.sequence = 12 * 11 * 10 * 9 * 7;
        config.model.heads = heads;
        config.model.kv_heads = kv_heads;
        config.parallel.tensor = tensor;
        ASSERT_NO_FATAL_FAILURE(expect_agreement(config, tensor, tried));
      }
    }
  }
  expect_both_kinds(tried);
}

TEST(Legality, OfSequences) {
  Tried tried;
  for (std::int64_t sequence = 1; sequence <= 72; ++sequence) {
    for (const std::int64_t context : {1, 2, 3, 4, 6}) {
      for (const std::int64_t tensor : {1, 2, 3, 4, 6}) {
        train::RunConfig config = small_mixtral();
        config.batch.sequence = sequence;
        config.model.heads = 12;
        config.model.kv_heads = 12;
        config.parallel.context = context;
        config.parallel.tensor = tensor;
        ASSERT_NO_FATAL_FAILURE(expect_agreement(config, context * tensor, tried));
      }
    }
  }
  expect_both_kinds(tried);
}

TEST(Legality, OfStagesAndLayouts) {
  const std::vector<std::int64_t> layouts[] = {{},
                                               {4},
                                               {3, 1},
                                               {4, 0},
                                               {3, 2},
                                               {5, -1},
                                               {1, 1, 2},
                                               {1, 1, 1, 1},
                                               {0, 4, 0, 0},
                                               {4, 1},
                                               {1, 0, 1, 1, 0, 1},
                                               {1, 0, 1, 0, 0, 1, 0, 1}};
  Tried tried;
  for (std::int64_t pipeline = 1; pipeline <= 8; ++pipeline) {
    for (std::int64_t chunks = 1; chunks <= 4; ++chunks) {
      for (const std::vector<std::int64_t>& layout : layouts) {
        train::RunConfig config = small_mixtral();
        config.parallel.pipeline = pipeline;
        config.parallel.chunks = chunks;
        config.parallel.layout = layout;
        for (const auto schedule : {plan::PipelineSchedule::kOneForwardOneBackward,
                                    plan::PipelineSchedule::kInterleaved}) {
          config.parallel.schedule = schedule;
          ASSERT_NO_FATAL_FAILURE(expect_agreement(config, pipeline, tried));
        }
      }
    }
  }
  expect_both_kinds(tried);
}

// More data ranks than micro-batches, and numbers that do not divide them, are legal.
TEST(Legality, OfBatches) {
  Tried tried;
  for (std::int64_t global = 1; global <= 12; ++global) {
    for (std::int64_t micro = 1; micro <= 5; ++micro) {
      for (const std::int64_t ranks : kRankCounts) {
        train::RunConfig config = small_mixtral();
        config.batch.micro = micro;
        config.batch.global = global;
        ASSERT_NO_FATAL_FAILURE(expect_agreement(config, ranks, tried));
      }
    }
  }
  expect_both_kinds(tried);
}

// Counted by a script of its own; the numbers stand in docs/testing.md.
TEST(Mappings, AreAllThatThereAre) {
  constexpr std::size_t kOfMixtral[] = {1, 10, 10, 46, 78, 145, 332};
  constexpr std::size_t kOfQwen2Moe[] = {1, 10, 10, 46, 99, 145, 332};
  for (std::size_t i = 0; i < std::size(kRankCounts); ++i) {
    const std::int64_t ranks = kRankCounts[i];
    EXPECT_EQ(all_mappings(cut_for(small_mixtral(), ranks), ranks).size(), kOfMixtral[i]);
    EXPECT_EQ(all_mappings(cut_for(small_qwen2_moe(), ranks), ranks).size(),
              kOfQwen2Moe[i]);
  }
}

TEST(Mappings, HoldTensorThreeWithExpertSix) {
  for (const train::RunConfig& config : {small_mixtral(), small_qwen2_moe()}) {
    const auto mappings = all_mappings(cut_for(config, 6), 6);
    EXPECT_TRUE(std::any_of(mappings.begin(), mappings.end(), [](const auto& mapping) {
      const train::ParallelSection& p = mapping.parallel;
      return p.tensor == 3 && p.pipeline * p.context == 1 && p.expert == 6;
    }));
  }
}

/// All mappings that the equivalence tests run.
std::vector<train::RunConfig> sample() {
  std::vector<train::RunConfig> all;
  for (const train::RunConfig& config : {small_mixtral(), small_qwen2_moe()}) {
    for (const std::int64_t ranks : kRankCounts) {
      const auto mappings = all_mappings(cut_for(config, ranks), ranks);
      all.insert(all.end(), mappings.begin(), mappings.end());
    }
  }
  return all;
}

TEST(Mappings, CombineSchedulesWithRecomputation) {
  std::set<std::tuple<std::int64_t, std::int64_t, bool, plan::Recompute>> met;
  for (const train::RunConfig& mapping : sample()) {
    const train::ParallelSection& p = mapping.parallel;
    EXPECT_EQ(p.schedule == plan::PipelineSchedule::kInterleaved, p.chunks > 1);
    if (p.pipeline != 2 && p.pipeline != 4) continue;
    met.emplace(p.pipeline, p.chunks, p.chunks == 1 && !p.layout.empty(),
                mapping.precision.recompute);
  }
  // Chunks 1 to 3 on both, and on two stages one chunk in an uneven layout too.
  EXPECT_EQ(met.size(), (3u + 3u + 1u) * 3u);
}

TEST(Mappings, CombineExchangesShardingAndRecomputation) {
  std::set<std::tuple<plan::DispatcherKind, plan::ContextExchange, plan::Sharding,
                      plan::Recompute>>
      met;
  for (const train::RunConfig& mapping : sample()) {
    const train::ParallelSection& p = mapping.parallel;
    if (p.context == 1) continue;
    met.emplace(p.dispatcher, p.context_exchange, p.sharding,
                mapping.precision.recompute);
  }
  EXPECT_EQ(met.size(), 2u * 2u * 2u * 3u);
}

}  // namespace
}  // namespace pleat::test
