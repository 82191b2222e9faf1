// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Section [parallel], and the keys of [moe] that only many ranks or experts need.
#include <gmock/gmock.h>

#include "deck/deck_test.hpp"
#include "deck/run_deck.hpp"

namespace pleat::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class RunParallelTest : public RunDeckTest {
 protected:
  std::string complaint_about(const std::string& overrides) const {
    return complaint([&] { load(kSmallDeck, words(overrides)); });
  }
};

TEST_F(RunParallelTest, Defaults) {
  const train::ParallelSection parallel = load(kSmallDeck).parallel;
  EXPECT_EQ(parallel.dispatcher, plan::DispatcherKind::kAllToAll);
  EXPECT_EQ(parallel.backend, comm::BackendKind::kAuto);
  EXPECT_EQ(parallel.context_exchange, plan::ContextExchange::kRing);
  EXPECT_EQ(parallel.schedule, plan::PipelineSchedule::kOneForwardOneBackward);
  EXPECT_EQ(parallel.chunks, 1);
  EXPECT_THAT(parallel.layout, IsEmpty());
  EXPECT_EQ(parallel.sharding, plan::Sharding::kOptimizer);
}

TEST_F(RunParallelTest, EveryKey) {
  const train::RunConfig config = load(
      kSmallDeck,
      words("model.layers=4 parallel.pipeline=2 parallel.context=2 parallel.tensor=4 "
            "parallel.expert=2 parallel.expert_tensor=8 parallel.dispatcher=allgather "
            "parallel.backend=nccl parallel.context_exchange=allgather "
            "parallel.schedule=interleaved "
            "parallel.layout=[2,1,1,0] parallel.sharding=parameters"));
  const train::ParallelSection& parallel = config.parallel;
  EXPECT_EQ(parallel.pipeline, 2);
  EXPECT_EQ(parallel.context, 2);
  EXPECT_EQ(parallel.tensor, 4);
  EXPECT_EQ(parallel.expert, 2);
  EXPECT_EQ(parallel.expert_tensor, 8);
  EXPECT_EQ(parallel.dispatcher, plan::DispatcherKind::kAllGather);
  EXPECT_EQ(parallel.backend, comm::BackendKind::kNccl);
  EXPECT_EQ(parallel.context_exchange, plan::ContextExchange::kAllGather);
  EXPECT_EQ(parallel.schedule, plan::PipelineSchedule::kInterleaved);
  EXPECT_EQ(parallel.chunks, 2);  // the default of an interleaved schedule
  EXPECT_THAT(parallel.layout, ElementsAre(2, 1, 1, 0));
  EXPECT_EQ(parallel.sharding, plan::Sharding::kParameters);
  EXPECT_EQ(load(config.resolved_deck).resolved_deck, config.resolved_deck);
}

TEST_F(RunParallelTest, MappingsThatDoNotFitNameThePlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"parallel.tensor=3", "parallel.tensor = 3 does not divide model.heads = 4"},
      {"parallel.expert=8", "parallel.expert = 8 does not divide moe.experts = 4"},
      {"parallel.expert_tensor=5",
       "parallel.expert_tensor = 5 does not divide moe.ffn = 32"},
      {"parallel.context=3",
       "batch.sequence = 16 is no multiple of 2 * parallel.context = 6"}};
  for (const auto& [overrides, text] : cases) {
    EXPECT_THAT(complaint_about(overrides),
                AllOf(StartsWith(fmt::format("PL0610: override '{}': ", overrides)),
                      HasSubstr(text)));
  }
  EXPECT_THAT(complaint_about("parallel.pipeline=3"),
              AllOf(StartsWith("PL0622: override 'parallel.pipeline=3': "),
                    HasSubstr("model.layers = 2")));
  EXPECT_THAT(complaint_about("parallel.layout=[1]"),
              AllOf(StartsWith("PL0623: override "), HasSubstr("holds 1 layers")));
  const std::string deck = std::string(kSmallDeck) + "[parallel]\ntensor = 8\n";
  EXPECT_THAT(
      complaint([&] { load(deck); }),
      AllOf(StartsWith("PL0610: "), HasSubstr("try.toml:16: parallel.tensor = 8")));
}

TEST_F(RunParallelTest, RouterAndDropping) {
  const plan::MoeConfig moe =
      load(kSmallDeck, words("moe.experts=8 moe.top_k=3 moe.score=sigmoid moe.groups=4 "
                             "moe.top_groups=2 moe.routed_scale=2.5 "
                             "moe.bias_update_rate=0.001 moe.aux_loss.scope=global_batch "
                             "moe.drop.capacity_factor=1.25 moe.drop.scope=sequence "
                             "moe.drop.policy=position moe.drop.pad=true"))
          .model.moe;
  EXPECT_EQ(moe.score, plan::RouterScore::kSigmoid);
  EXPECT_EQ(moe.auxiliary_scope, plan::AuxiliaryScope::kGlobalBatch);
  EXPECT_EQ(moe.groups, 4);
  EXPECT_EQ(moe.top_groups, 2);
  EXPECT_EQ(moe.routed_scale, 2.5);
  EXPECT_EQ(moe.bias_update_rate, 0.001);
  EXPECT_EQ(moe.drop.capacity_factor, 1.25);
  EXPECT_EQ(moe.drop.scope, plan::DropScope::kSequence);
  EXPECT_EQ(moe.drop.policy, plan::DropPolicy::kPosition);
  EXPECT_TRUE(moe.drop.pad);
  EXPECT_FALSE(load(kSmallDeck).model.moe.drop.active());
}

TEST_F(RunParallelTest, GroupsOfExpertsMustFit) {
  const std::pair<const char*, const char*> cases[] = {
      {"moe.groups=3", "moe.groups = 3 does not divide moe.experts = 4"},
      {"moe.groups=4", "one expert in each group"},
      {"moe.groups=2 moe.top_groups=3",
       "moe.top_groups = 3: expected 1 to moe.groups = 2"},
      {"moe.groups=2 moe.top_k=3",
       "moe.top_k = 3, but moe.top_groups = 1 groups have 2"}};
  for (const auto& [overrides, text] : cases) {
    EXPECT_THAT(complaint_about(overrides),
                AllOf(StartsWith("PL0620: "), HasSubstr(text)));
  }
  EXPECT_THAT(complaint_about("moe.drop.pad=true"),
              AllOf(StartsWith("PL0621: "), HasSubstr("set moe.drop.capacity_factor")));
  EXPECT_THAT(complaint_about("moe.routed_scale=0"), StartsWith("PL0206: "));
  EXPECT_THAT(complaint_about("moe.score=sigmoids"),
              AllOf(StartsWith("PL0207: "), HasSubstr("did you mean \"sigmoid\"?")));
}

// How a model is trained is the deck's to say, also when the model is given.
TEST_F(RunParallelTest, DroppingAndBiasGoWithInit) {
  const std::string init = "model.init=" PLEAT_TESTS_DIR "/golden/mixtral-tiny";
  const plan::MoeConfig moe =
      load("[run]\nsteps = 1\n[batch]\nsequence = 8\n[data]\nformat = \"synthetic\"\n",
           {init, "moe.drop.capacity_factor=1", "moe.bias_update_rate=0.01"})
          .model.moe;
  EXPECT_EQ(moe.drop.capacity_factor, 1.0);
  EXPECT_EQ(moe.bias_update_rate, 0.01);
  EXPECT_EQ(moe.experts, 8);
}

}  // namespace
}  // namespace pleat::test
