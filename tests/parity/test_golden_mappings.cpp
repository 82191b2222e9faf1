// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The golden traces on several ranks, through the same plain decks: losses, norms,
/// gradients and final weights to the same tolerances as on one rank.

#include <algorithm>
#include <string>

#include "golden_expectations.hpp"
#include "support/golden_deck.hpp"
#include "support/mpiexec.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

struct GoldenMapping {
  const char* name;
  const char* golden;
  int ranks;
  const char* overrides;
};

// The golden balancing loss is over the whole batch: one micro-batch per data rank with scope
// global_batch, or a single micro-batch. The case without router losses takes any number.
constexpr GoldenMapping kMappings[] = {
    {"TP2_CP2_DP2_EP8", "qwen2moe-tiny", 8,
     "parallel.tensor=2 parallel.context=2 parallel.expert=8 batch.micro=2 "
     "moe.aux_loss.scope=global_batch"},
    {"TP2_PP2_ETP2", "mixtral-tiny", 4,
     "parallel.tensor=2 parallel.pipeline=2 parallel.expert_tensor=2"},
    {"TP4_EP4", "qwen3moe-tiny", 4,
     "parallel.tensor=4 parallel.expert=4 parallel.dispatcher=allgather"},
    {"DP4_ETP4", "mixtral-tiny", 4,
     "parallel.expert_tensor=4 batch.micro=1 moe.aux_loss.scope=global_batch"},
    {"PP4_with_stages_without_layers", "mixtral-tiny-noaux", 4,
     "parallel.pipeline=4 batch.micro=1 'parallel.layout=[0,1,1,0]'"},
    {"PP2_interleaved", "mixtral-tiny-noaux", 2,
     "parallel.pipeline=2 batch.micro=1 parallel.schedule=interleaved "
     "'parallel.layout=[1,0,0,1]'"},
    {"PP2_DP3_ETP3", "mixtral-tiny-noaux", 6,
     "parallel.pipeline=2 parallel.expert_tensor=3 batch.micro=1"},
    {"CP4_allgather", "qwen2moe-tiny", 4,
     "parallel.context=4 parallel.expert=2 parallel.context_exchange=allgather"},
    {"sharded_parameters", "qwen2moe-tiny", 4,
     "parallel.sharding=parameters parallel.tensor=2 batch.micro=2 "
     "moe.aux_loss.scope=global_batch precision.recompute=full"},
    {"all_axes_at_two", "mixtral-tiny-noaux", 16,
     "parallel.pipeline=2 parallel.context=2 parallel.tensor=2 parallel.expert=4 "
     "parallel.expert_tensor=2 batch.micro=1"}};

class GoldenMappings : public ProgramTest,
                       public ::testing::WithParamInterface<GoldenMapping> {};

TEST_P(GoldenMappings, AgreeToRounding) {
  const GoldenMapping& mapping = GetParam();
  const std::string deck = write("deck.toml", golden_deck(mapping.golden, "fp64"));
  const CommandResult run =
      pleat("train " + deck + " " + mapping.overrides, mpiexec(mapping.ranks));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const std::string golden = golden_folder(mapping.golden);
  expect_trace(path("out/metrics.csv"), golden + "/trace.h5", 1e-12, 1e-12);
  expect_gradients(path("out/gradients/step_00000001.h5"), golden + "/golden.h5");
  const CommandResult converted = pleat("convert out hf");
  ASSERT_EQ(converted.exit_code, 0) << converted.output;
  expect_final_weights(path("hf"), golden + "/trace.h5");
}

INSTANTIATE_TEST_SUITE_P(Mappings, GoldenMappings, ::testing::ValuesIn(kMappings),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pleat::test
