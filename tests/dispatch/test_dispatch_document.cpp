// SPDX-License-Identifier: Apache-2.0
//
// The table of docs/dispatcher.md is what its formulas give for the presets.
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dispatch/traffic_formulas.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::test {
namespace {

struct Row {
  const char* preset;
  const char* mapping;
  double tp, ep, etp;
};

/// \brief The mappings of the paper's table 1, unfolded and folded.
constexpr Row kRows[] = {{"mixtral-8x22b", "unfolded", 2, 4, 2},
                         {"mixtral-8x22b", "folded", 2, 8, 1},
                         {"llama3-8x70b", "unfolded", 8, 4, 8},
                         {"llama3-8x70b", "folded", 8, 8, 1},
                         {"qwen2-57b-a14b", "unfolded", 2, 4, 2},
                         {"qwen2-57b-a14b", "folded", 2, 4, 1},
                         {"mixtral-8x22b-g8t8", "unfolded", 2, 8, 2},
                         {"mixtral-8x22b-g8t8", "folded", 4, 8, 1}};

std::string table() {
  std::string text;
  for (const Row& row : kRows) {
    const plan::ModelConfig config = plan::preset(row.preset);
    const TokenBytes bytes{.hidden = static_cast<double>(config.hidden),
                           .element_bytes = 2.0,
                           .top_k = static_cast<double>(config.moe.top_k)};
    const double attention = bytes.split(row.tp);
    const double shared = config.moe.shared_ffn > 0 ? bytes.split(row.tp) : 0.0;
    const double experts = bytes.experts(row.ep);
    const double shards = bytes.shards(row.etp);
    text += fmt::format(
        "| `{}` | {}: tp {:.0f}, ep {:.0f}, etp {:.0f} | {:.0f} | {:.0f} | {:.0f} | "
        "{:.0f} | "
        "{:.0f} | {:.0f} |\n",
        row.preset, row.mapping, row.tp, row.ep, row.etp, attention, shared, experts,
        shards, attention + shared + experts + shards, bytes.gathered(row.ep * row.etp));
  }
  return text;
}

TEST(DispatcherDocument, HasTheTableOfItsFormulas) {
  std::ifstream file(PLEAT_SOURCE_DIR "/docs/dispatcher.md");
  std::stringstream document;
  document << file.rdbuf();
  EXPECT_NE(document.str().find(table()), std::string::npos)
      << "docs/dispatcher.md should have these rows:\n"
      << table();
}

TEST(TrafficFormulas, HandWorked) {
  // 4096 wide in bf16 is 8192 bytes; two choices on four expert ranks, two shards.
  const TokenBytes bytes{.hidden = 4096, .element_bytes = 2, .top_k = 2};
  EXPECT_EQ(bytes.split(2), 16384);
  EXPECT_EQ(bytes.experts(4), 24576);
  EXPECT_EQ(bytes.shards(2), 32768);
  EXPECT_EQ(bytes.gathered(8), 114688);
  EXPECT_EQ(bytes.split(1) + bytes.experts(1) + bytes.shards(1) + bytes.gathered(1), 0);
}

}  // namespace
}  // namespace pleat::test
