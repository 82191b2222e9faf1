// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The golden traces through the program's own commands: losses, norms, rates,
/// gradients and final weights of 20 steps against numbers from Hugging Face transformers.

#include <algorithm>
#include <string>

#include "golden_expectations.hpp"
#include "pleat/io/safetensors.hpp"
#include "pleat/base/bf16.hpp"
#include "support/golden_deck.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

class GoldenRun : public ProgramTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void train(const std::string& precision) {
    const CommandResult run = pleat("train " + write("deck.toml", golden_deck(GetParam(), precision)));
    ASSERT_EQ(run.exit_code, 0) << run.output;
  }
  std::string golden(const char* file) const { return golden_folder(GetParam()) + "/" + file; }
};

TEST_P(GoldenRun, Fp64TraceAgreesToRounding) {
  train("fp64");
  expect_trace(path("out/metrics.csv"), golden("trace.h5"), 1e-12, 1e-12);
}

TEST_P(GoldenRun, Fp32LossesAgree) {
  train("fp32");
  expect_trace(path("out/metrics.csv"), golden("trace.h5"), 1e-5, 1e-4);
}

// The first step shows the rounding of bf16 alone, of which a loss is allowed the largest
// relative error of one number (on a CPU 3.2e-3 at most, with whatever multiplies); then choices
// of the routers fall otherwise and the traces part (loss 1.2e-2, router losses and norms 4e-2).
TEST_P(GoldenRun, Bf16LossesAgree) {
  train("bf16");
  expect_trace(path("out/metrics.csv"), golden("trace.h5"), Bf16::kRoundoff, Bf16::kRoundoff, 1);
  expect_trace(path("out/metrics.csv"), golden("trace.h5"), 0.1, 0.1);
}

TEST_P(GoldenRun, GradientsOfTheFirstStepAgree) {
  train("fp64");
  expect_gradients(path("out/gradients/step_00000001.h5"), golden("golden.h5"));
}

TEST_P(GoldenRun, ConvertedFinalWeightsAgree) {
  train("fp64");
  const CommandResult converted = pleat("convert out hf");
  ASSERT_EQ(converted.exit_code, 0) << converted.output;
  expect_final_weights(path("hf"), golden("trace.h5"));
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenRun,
                         ::testing::Values("mixtral-tiny", "mixtral-tiny-noaux",
                                           "qwen2moe-tiny", "qwen3moe-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace pleat::test
