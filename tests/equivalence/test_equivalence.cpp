// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Every legal mapping of two small models over the ranks of the job against one rank:
/// losses, gradient norm, every gradient and every weight of three steps, in fp64.

#include <cstdio>

#include <gtest/gtest.h>

#include "mappings.hpp"
#include "pleat/train/verify.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

constexpr double kTolerance = 1.0e-10;

int ranks_of_world() {
  int ranks = 0;
  MPI_Comm_size(world(), &ranks);
  return ranks;
}

bool is_first_rank() {
  int rank = 0;
  MPI_Comm_rank(world(), &rank);
  return rank == 0;
}

void expect_equivalent(const train::RunConfig& config,
                       const std::vector<train::RunConfig>& mappings) {
  const RaggedTokens data(config.model.vocab, config.run.seed);
  const train::Reference reference(config, config.run.steps, data, world());
  const int ranks = ranks_of_world();
  double largest = 0.0;
  for (const train::RunConfig& mapping : mappings) {
    const train::VerifyReport report = reference.compare(mapping, data);
    largest = std::max(largest, report.largest());
    EXPECT_TRUE(report.passes(kTolerance))
        << mapping_text(mapping, ranks) << "\nstart " << report.same_start << " samples "
        << report.same_samples << " loss " << report.loss.relative << " at "
        << report.loss.place << " norm " << report.gradient_norm.relative << " gradients "
        << report.gradients.relative << " at " << report.gradients.place << " weights "
        << report.weights.relative << " at " << report.weights.place;
  }
  ASSERT_FALSE(mappings.empty());
  if (!is_first_rank()) return;
  std::printf("%zu mappings over %d ranks, largest difference %.1e\n", mappings.size(), ranks,
              largest);
}

void expect_every_mapping(const train::RunConfig& model) {
  const train::RunConfig config = cut_for(model, ranks_of_world());
  expect_equivalent(config, all_mappings(config, ranks_of_world()));
}

void expect_every_option(const train::RunConfig& model) {
  const train::RunConfig config = cut_for(model, ranks_of_world());
  expect_equivalent(config, all_options(config, ranks_of_world()));
}

TEST(Equivalence, EveryMappingOfASmallMixtral) { expect_every_mapping(small_mixtral()); }

TEST(Equivalence, EveryMappingOfASmallQwen2Moe) { expect_every_mapping(small_qwen2_moe()); }

TEST(EquivalenceInFull, EveryOptionOfASmallMixtral) { expect_every_option(small_mixtral()); }

TEST(EquivalenceInFull, EveryOptionOfASmallQwen2Moe) {
  expect_every_option(small_qwen2_moe());
}

/// The same mapping twice gives the same bits.
TEST(Equivalence, AMappingRepeatsItsBits) {
  for (const train::RunConfig& model : {small_mixtral(), small_qwen2_moe()}) {
    const train::RunConfig config = cut_for(model, ranks_of_world());
    const RaggedTokens data(config.model.vocab, config.run.seed);
    const train::Reference reference(config, config.run.steps, data, world());
    const auto mappings = all_mappings(config, ranks_of_world());
    for (std::size_t i = 0; i < mappings.size(); i += 1 + mappings.size() / 6) {
      EXPECT_EQ(reference.compare(mappings[i], data).fingerprint,
                reference.compare(mappings[i], data).fingerprint)
          << mapping_text(mappings[i], ranks_of_world());
    }
  }
}

}  // namespace
}  // namespace pleat::test
