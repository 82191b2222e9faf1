// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Every deck of the folder inputs is read, and is the same run once resolved.
#include <gmock/gmock.h>

#include "deck/deck_test.hpp"
#include "deck/run_deck.hpp"
#include "pleat/train/grid_choice.hpp"

namespace pleat::test {
namespace {

class InputsTest : public RunDeckTest {};

TEST_F(InputsTest, EveryDeckIsRead) {
  int decks = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(
           std::string(PLEAT_SOURCE_DIR) + "/inputs")) {
    if (file.path().extension() != ".toml") continue;
    if (file.path().parent_path().filename() == "machines") continue;
    ++decks;
    SCOPED_TRACE(file.path().string());
    const train::RunConfig config = train::load_run_config(file.path().string(), {});
    // The output folder carries the name of the deck.
    EXPECT_EQ(config.run.name, file.path().stem().string());
    for (const std::string& path : config.data.paths) {
      EXPECT_TRUE(std::filesystem::exists(path)) << path;
    }
    EXPECT_EQ(load(config.resolved_deck).resolved_deck, config.resolved_deck);
  }
  EXPECT_GE(decks, 16);
}

// The rows of the folding paper's comparison, on the ranks that their comments name.
TEST_F(InputsTest, FoldingDecksFillTheirRanks) {
  const std::pair<const char*, std::int64_t> decks[] = {
      {"fsdp", 8},      {"fsdp-ep", 8}, {"tp-ep-dp", 8},
      {"unfolded", 16}, {"folded", 16}, {"qwen2-folded", 16}};
  for (const auto& [name, ranks] : decks) {
    const std::string path =
        std::string(PLEAT_SOURCE_DIR) + "/inputs/folding/" + name + ".toml";
    EXPECT_NO_THROW(train::grid_shape_of(train::load_run_config(path, {}), ranks))
        << name;
    EXPECT_THAT(read_text(path), testing::HasSubstr(fmt::format("mpirun -n {} ", ranks)));
  }
}

TEST_F(InputsTest, BenchSHasItsPublishedShape) {
  const train::RunConfig config =
      train::load_run_config(std::string(PLEAT_SOURCE_DIR) + "/inputs/bench-s.toml", {});
  // docs/performance.md has the first, docs/models.md both.
  const plan::FlopCount flops =
      plan::training_flops_per_token(config.model, config.batch.sequence);
  EXPECT_NEAR(flops.causal_attention * 1e-6, 125.83, 0.01);
  EXPECT_NEAR(flops.full_attention * 1e-6, 132.12, 0.01);
  EXPECT_EQ(config.batch.micro * config.batch.sequence, 2048);
}

}  // namespace
}  // namespace pleat::test
