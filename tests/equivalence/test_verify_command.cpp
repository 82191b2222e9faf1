// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief `pleat verify` as a user calls it, and on the decks of inputs/folding.

#include <cmath>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "support/mpiexec.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kDeck = R"(
[run]
steps = 3
[model]
layers = 2
hidden = 24
heads = 4
kv_heads = 2
vocab = 53
[moe]
experts = 4
ffn = 16
aux_loss.coeff = 0.01
[batch]
sequence = 16
micro = 1
global = 4
[data]
format = "synthetic"
)";

class VerifyCommand : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write("deck.toml", kDeck);
  }
  CommandResult verify(int ranks, const std::string& arguments) const {
    return pleat("verify deck.toml --seconds 0 " + arguments, ranks > 1 ? mpiexec(ranks) : "");
  }
};

/// "content hash 0123456789abcdef", of weights and of samples.
std::vector<std::string> hashes(const std::string& output) {
  static const std::regex kHash("content hash [0-9a-f]{16}\n");
  std::vector<std::string> found;
  for (std::sregex_iterator hash(output.begin(), output.end(), kHash), end; hash != end;
       ++hash) {
    found.push_back(hash->str());
  }
  return found;
}

// Any mapping on any number of ranks begins with the same weights and takes the same
// samples.
TEST_F(VerifyCommand, ContentHashesAreThoseOfOneRank) {
  const CommandResult one = verify(1, "");
  ASSERT_EQ(one.exit_code, 0) << one.output;
  ASSERT_EQ(hashes(one.output).size(), 2u) << one.output;
  for (const char* mapping :
       {"parallel.tensor=4 parallel.expert=2", "parallel.pipeline=2 parallel.expert=2",
        "parallel.context=2 parallel.sharding=parameters parallel.expert_tensor=4"}) {
    const CommandResult run = verify(4, mapping);
    EXPECT_EQ(run.exit_code, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr("VERIFIED: tolerance 1e-10\n"));
    EXPECT_EQ(hashes(run.output), hashes(one.output)) << run.output;
  }
  const CommandResult other = verify(1, "run.seed=2");
  ASSERT_EQ(hashes(other.output).size(), 2u) << other.output;
  EXPECT_NE(hashes(other.output)[0], hashes(one.output)[0]);
  EXPECT_NE(hashes(other.output)[1], hashes(one.output)[1]);
}

// The first of several is not a proof of what the others do.
TEST_F(VerifyCommand, OneRankAloneProvesNothing) {
  const CommandResult one = verify(1, "");
  EXPECT_EQ(one.exit_code, 0) << one.output;
  EXPECT_THAT(one.output,
              AllOf(HasSubstr("ONE RANK, COMPARED WITH ITSELF: nothing is proved"),
                    HasSubstr("mpiexec -n N pleat verify"), Not(HasSubstr("VERIFIED"))));
}

// Another order of sums is another rounding.
TEST_F(VerifyCommand, WhatIsBeyondTheToleranceFailsAndIsNamed) {
  const CommandResult run = verify(2, "parallel.tensor=2 --tolerance 1e-30");
  EXPECT_EQ(run.exit_code, 3) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("FAILED: tolerance 1e-30\n"),
                                HasSubstr("step "), HasSubstr("model.layers.")));
}

TEST_F(VerifyCommand, WhatDependsOnTheMappingIsRefused) {
  const CommandResult drop = verify(2, "parallel.context=2 moe.drop.capacity_factor=1");
  EXPECT_EQ(drop.exit_code, 2);
  EXPECT_THAT(drop.output,
              AllOf(HasSubstr("PL0721"), HasSubstr("moe.drop.scope=sequence")));
  const CommandResult running = verify(2, "moe.aux_loss.scope=global_batch");
  EXPECT_EQ(running.exit_code, 2);
  EXPECT_THAT(running.output, AllOf(HasSubstr("PL0721"), HasSubstr("batch.micro=2")));
  // What the messages advise works.
  EXPECT_EQ(verify(2,
                   "parallel.context=2 moe.drop.capacity_factor=1 "
                   "moe.drop.scope=sequence")
                .exit_code,
            0);
  EXPECT_EQ(verify(2, "moe.aux_loss.scope=global_batch batch.micro=2").exit_code, 0);
}

struct FoldingDeck {
  std::string name;
  int ranks;

  std::string path() const {
    return std::string(PLEAT_SOURCE_DIR) + "/inputs/folding/" + name + ".toml";
  }
};

// One model on five mappings, the rows of the paper's table; and another.
const std::vector<FoldingDeck> kMixtral = {
    {"fsdp", 8}, {"fsdp-ep", 8}, {"tp-ep-dp", 8}, {"unfolded", 16}, {"folded", 16}};
const FoldingDeck kQwen2{"qwen2-folded", 16};

class FoldingDecks : public ProgramTest {
 protected:
  // With fewer and shorter samples.
  void expect_verified(const FoldingDeck& deck) const {
    const CommandResult run =
        pleat("verify " + deck.path() + " --seconds 0 --steps 2 batch.sequence=32 batch.global=8",
              mpiexec(deck.ranks));
    EXPECT_EQ(run.exit_code, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr("VERIFIED"));
  }

  /// Of three steps of the deck as it stands.
  std::map<std::string, std::vector<double>> train(const FoldingDeck& deck) const {
    const CommandResult run =
        pleat("train " + deck.path() +
                  " run.steps=3 optimizer.warmup=0 run.output=" + deck.name,
              mpiexec(deck.ranks));
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return read_metrics(path(deck.name + "/metrics.csv"));
  }
};

TEST_F(FoldingDecks, ComputeWhatOneRankComputes) {
  for (const FoldingDeck& deck : kMixtral) expect_verified(deck);
  expect_verified(kQwen2);
}

// To the rounding of fp32.
TEST_F(FoldingDecks, OfOneModelTrainAlikeAsTheyStand) {
  std::vector<double> first;
  for (const FoldingDeck& deck : kMixtral) {
    const auto metrics = train(deck);
    const std::vector<double>& losses = metrics.at("loss_ce");
    ASSERT_EQ(losses.size(), 3u) << deck.name;
    EXPECT_GT(metrics.at("dropped").front(), 0.0) << deck.name;
    if (first.empty()) first = losses;
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(losses[i], first[i], 1e-5) << deck.name;
  }
}

TEST_F(FoldingDecks, TheOtherModelTrains) {
  const auto metrics = train(kQwen2);
  ASSERT_EQ(metrics.at("loss_ce").size(), 3u);
  for (const double loss : metrics.at("loss_ce"))
    EXPECT_NEAR(loss, std::log(1500.0), 0.5);
}

}  // namespace
}  // namespace pleat::test
