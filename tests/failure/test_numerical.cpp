// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief NaN and Inf end the run with exit code 3, the step and the layer.

#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "failure/failure_deck.hpp"
#include "pleat/io/hdf5.hpp"
#include "pleat/io/safetensors.hpp"
#include "support/golden_deck.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

class Numerical : public ProgramTest {
 protected:
  /// A copy of the golden model in which one element of a tensor is not a number.
  void poison(const std::string& name) {
    const io::SafetensorsReader model(golden_folder("qwen3moe-tiny"));
    std::filesystem::create_directory(path("hf"));
    std::filesystem::copy_file(golden_folder("qwen3moe-tiny") + "/config.json",
                               path("hf/config.json"));
    io::SafetensorsWriter writer(path("hf"), model.entries(), std::int64_t{1} << 40);
    for (const io::SafetensorsEntry& entry : model.entries()) {
      std::vector<std::byte> bytes = model.read_raw(entry);
      if (entry.name == name) {
        const float nan = std::numeric_limits<float>::quiet_NaN();
        std::memcpy(bytes.data(), &nan, sizeof nan);
      }
      writer.write(entry.name, bytes);
    }
    writer.finish();
  }
  CommandResult train_poisoned() {
    return pleat("train " + write("deck.toml",
                                  "[run]\nsteps = 3\noutput = \"out\"\n"
                                  "[model]\ninit = \"hf\"\n[batch]\nsequence = 16\n"
                                  "[data]\nformat = \"synthetic\"\n"));
  }
};

TEST_F(Numerical, TheLayerIsNamed) {
  poison("model.layers.1.self_attn.o_proj.weight");
  const CommandResult run = train_poisoned();
  EXPECT_EQ(run.exit_code, 3) << run.output;
  EXPECT_NE(run.output.find("step 1:"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("layer 1"), std::string::npos) << run.output;
  EXPECT_TRUE(std::filesystem::is_empty(path("out/checkpoints")));
}

TEST_F(Numerical, TheFirstLayerIsNamed) {
  poison("model.layers.0.mlp.gate.weight");
  const CommandResult run = train_poisoned();
  EXPECT_EQ(run.exit_code, 3) << run.output;
  EXPECT_NE(run.output.find("layer 0"), std::string::npos) << run.output;
}

TEST_F(Numerical, TheFinalNormIsNamed) {
  poison("model.norm.weight");
  const CommandResult run = train_poisoned();
  EXPECT_EQ(run.exit_code, 3) << run.output;
  EXPECT_NE(run.output.find("the final norm"), std::string::npos) << run.output;
}

TEST_F(Numerical, TheHeadIsNamed) {
  poison("lm_head.weight");
  const CommandResult run = train_poisoned();
  EXPECT_EQ(run.exit_code, 3) << run.output;
  EXPECT_NE(run.output.find("head"), std::string::npos) << run.output;
}

TEST_F(Numerical, ALearningRateThatDivergesEndsTheRun) {
  write("deck.toml", kSoundDeck);
  const CommandResult run =
      pleat("train deck.toml run.steps=60 optimizer.lr=1e30 optimizer.min_lr=1e30");
  EXPECT_EQ(run.exit_code, 3) << run.output;
  EXPECT_NE(run.output.find("step "), std::string::npos) << run.output;
}

}  // namespace
}  // namespace pleat::test
