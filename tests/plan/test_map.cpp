// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief `pleat map` as a user calls it.
#include <chrono>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deck/deck_test.hpp"

namespace pleat::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kDeck = R"([run]
steps = 1
[model]
layers = 16
hidden = 128
heads = 8
kv_heads = 4
vocab = 256
[moe]
experts = 64
ffn = 64
[batch]
sequence = 128
global = 16
[data]
format = "synthetic"
)";

class MapTest : public ScratchFolder {
 protected:
  void SetUp() override {
    ScratchFolder::SetUp();
    deck_ = write("map.toml", kDeck);
  }

  /// \returns what it prints; "exit code N" in front when it fails
  std::string map(const std::string& arguments) const {
    const std::string out = (folder_ / "out").string();
    const std::string command = std::string(PLEAT_PROGRAM) + " map " + deck_ + " " +
                                arguments + " >'" + out + "' 2>&1";
    const int code = WEXITSTATUS(std::system(command.c_str()));
    return (code == 0 ? "" : "exit code " + std::to_string(code) + ": ") + read_text(out);
  }

  std::string map_in_a_second(const std::string& arguments) const {
    const auto begin = std::chrono::steady_clock::now();
    const std::string text = map(arguments);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(time.count(), 1.0) << arguments;
    return text;
  }

  std::string deck_;
};

// The smallest instructive case of the folding paper (figure 9).
TEST_F(MapTest, EightRanksByHand) {
  const std::string text =
      map("--ranks 8 parallel.context=2 parallel.tensor=2 parallel.expert=8");
  EXPECT_THAT(text, AllOf(HasSubstr("data 1           [4 5]     [6 7]"),
                          HasSubstr("expert_data 0    [0] [1] [2] [3] [4] [5] [6] [7]"),
                          HasSubstr("rank 5: attention data 1, context 0, tensor 1 | "
                                    "MoE expert 5\n")));
  const std::string five =
      map("--ranks 8 --rank 5 parallel.context=2 parallel.tensor=2 parallel.expert=8");
  EXPECT_THAT(five,
              AllOf(Not(HasSubstr("rank 4:")), HasSubstr("tensor                4, 5:"),
                    HasSubstr("context               5, 7:"),
                    HasSubstr("data*context          1, 3, 5, 7:"),
                    HasSubstr("expert                0, 1, ..., 7 (8 ranks):"),
                    Not(HasSubstr("expert_data     ")),
                    HasSubstr("positions 0 to 31 and 96 to 127; heads 4 to 7 of 8"),
                    HasSubstr("experts 40 to 47 of 64; all 64 ffn columns")));
}

// All groups of comm::GroupName that have more than one rank, and the two that are cut
// out of a group: copies of kv heads and the ends of a pipeline with a tied embedding.
TEST_F(MapTest, EveryGroupThatExchangesIsNamed) {
  const std::string mapping =
      "--ranks 64 --rank 5 parallel.pipeline=2 parallel.context=2 parallel.tensor=8 "
      "parallel.expert=4 parallel.expert_tensor=4 ";
  const std::string text = map(mapping + "model.tied=true");
  EXPECT_THAT(text,
              AllOf(HasSubstr("  pipeline              from none, to 37:"),
                    HasSubstr("  tied embedding        5, 37:"),
                    HasSubstr("  tensor                0, 1, ..., 7 (8 ranks):"),
                    HasSubstr("  kv copies             4, 5:"),
                    HasSubstr("  context               5, 13:"),
                    HasSubstr("  data                  5, 21: how many tokens"),
                    HasSubstr("  context*tensor        0, 1, ..., 15 (16 ranks):"),
                    HasSubstr("  data*context          5, 13, 21, 29:"),
                    HasSubstr("  data*context*tensor   0, 1, ..., 31 (32 ranks):")));
  EXPECT_THAT(text,
              AllOf(HasSubstr("  expert                1, 5, 9, 13:"),
                    HasSubstr("  expert_tensor         4, 5, 6, 7:"),
                    HasSubstr("  expert*expert_tensor  0, 1, ..., 15 (16 ranks):"),
                    HasSubstr("  expert_data           5, 21:"),
                    HasSubstr("  world                 0, 1, ..., 63 (64 ranks):")));
  const std::string global = map(mapping + "moe.aux_loss.scope=global_batch");
  EXPECT_THAT(global, AllOf(Not(HasSubstr("context*tensor        0, 1, ..., 15")),
                            Not(HasSubstr("tied")),
                            HasSubstr("(32 ranks): router statistics; gradients")));
  // A rank by itself talks to nobody.
  EXPECT_THAT(map("--ranks 1"),
              AllOf(Not(HasSubstr("world")), Not(HasSubstr("tokens carry loss"))));
}

TEST_F(MapTest, NeighboursInThePipeline) {
  const std::string plain = map("--ranks 8 --rank 1 parallel.pipeline=4");
  EXPECT_THAT(plain, AllOf(HasSubstr("from none, to 3:"),
                           HasSubstr("stage 0   layers 0 to 3; embedding; 4 in flight")));
  // With chunks the last stage goes on at the first.
  const std::string ring =
      map("--ranks 8 --rank 1 parallel.pipeline=4 parallel.schedule=interleaved");
  EXPECT_THAT(ring, AllOf(HasSubstr("from 7, to 3:"),
                          HasSubstr("stage 0   layers 0 to 1; 8 to 9; embedding")));
}

TEST_F(MapTest, ThousandsOfRanksInUnderASecond) {
  const std::string text =
      map_in_a_second("--ranks 16384 --rank 4711 parallel.pipeline=16 parallel.tensor=8 "
                      "parallel.expert=64");
  // 4711 = ((4 128 + 76) 1 + 0) 8 + 7 = ((4 16 + 9) 64 + 39) 1.
  EXPECT_THAT(text,
              AllOf(HasSubstr("rank 4711: attention pipeline 4, data 76, tensor 7 | MoE "
                              "pipeline 4, expert_data 9, expert 39\n"),
                    HasSubstr("4103, 4111, ..., 5119 (128 ranks): gradients"),
                    HasSubstr("expert 39 of 64")));
}

// Each stage is looked for by each of them, in lists of all layers and micro-batches.
TEST_F(MapTest, ManyStagesAndMicroBatchesInUnderASecond) {
  const std::string deep = "--ranks 16384 model.layers=256 model.heads=32 ";
  EXPECT_THAT(map_in_a_second(deep + "parallel.pipeline=256 model.tied=true"),
              HasSubstr("  tied embedding        0, 16320:"));
  EXPECT_THAT(map_in_a_second(deep + "parallel.pipeline=128 parallel.tensor=32 "
                                     "parallel.schedule=interleaved parallel.chunks=2"),
              HasSubstr("stage 127 "));
  EXPECT_THAT(map_in_a_second(deep + "parallel.pipeline=128 parallel.tensor=32 "
                                     "batch.global=4194304"),
              HasSubstr("stage 0   layers 0 to 1; embedding; 128 in flight"));
}

TEST_F(MapTest, DrawsAnSvg) {
  const std::string file = (folder_ / "grid.svg").string();
  map("--ranks 4 parallel.expert=4 --svg " + file);
  const std::string svg = read_text(file);
  EXPECT_THAT(svg, AllOf(testing::StartsWith("<svg "), HasSubstr(">ep3</text>"),
                         HasSubstr(">dp3</text>"), testing::EndsWith("</svg>\n")));
  // Refused before anything is said.
  EXPECT_THAT(map("--ranks 128 --svg " + file),
              AllOf(HasSubstr("exit code 2: "), Not(HasSubstr("mapping:"))));
}

TEST_F(MapTest, RefusesWhatDoesNotFit) {
  EXPECT_THAT(map("--ranks 6 parallel.expert=4"), HasSubstr("PL0802"));
  EXPECT_THAT(map("--ranks 4 --rank 4"), HasSubstr("expected 0 to 3"));
  EXPECT_THAT(map(""), HasSubstr("--ranks is required"));
}

}  // namespace
}  // namespace pleat::test
