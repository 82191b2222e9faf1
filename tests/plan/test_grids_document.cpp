// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The pictures of docs/grids.md are those that `pleat map` draws.

#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "support/program.hpp"

namespace pleat::test {
namespace {

// The model that the page speaks of.
constexpr const char* kDeck = R"([run]
steps = 1
[model]
layers = 4
hidden = 128
heads = 8
kv_heads = 4
vocab = 256
[moe]
experts = 8
ffn = 256
[batch]
sequence = 128
global = 8
[data]
format = "synthetic"
)";

std::string page() {
  std::ostringstream text;
  text << std::ifstream(PLEAT_SOURCE_DIR "/docs/grids.md").rdbuf();
  return text.str();
}

/// From `first` to where `behind` begins, or to the end; as a block of code in Markdown.
std::string block(const std::string& text, const std::string& first,
                  const std::string& behind = "") {
  const std::size_t begin = text.find(first);
  const std::size_t end = behind.empty() ? std::string::npos : text.find(behind, begin);
  if (begin == std::string::npos) return "no '" + first + "' in " + text;
  std::istringstream lines(text.substr(begin, end - begin));
  std::string indented;
  for (std::string line; std::getline(lines, line);) {
    indented += line.empty() ? "\n" : "    " + line + "\n";
  }
  return indented.substr(0, indented.find_last_not_of('\n') + 1) + "\n";
}

class GridsDocument : public ProgramTest {
 protected:
  std::string map(const std::string& arguments) const {
    write("deck.toml", kDeck);
    const CommandResult run = pleat("map deck.toml " + arguments);
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return run.output;
  }

  static void expect_on_page(const std::string& drawn) {
    EXPECT_NE(page().find(drawn), std::string::npos) << "docs/grids.md should have\n"
                                                     << drawn;
  }
};

TEST_F(GridsDocument, HasThePictureAndTheAccountOfEightRanks) {
  const std::string degrees =
      "--ranks 8 parallel.context=2 parallel.tensor=2 parallel.expert=8 ";
  expect_on_page(block(map(degrees), "attention: brackets", "stages:"));
  expect_on_page(block(map(degrees + "--rank 5"), "rank 5:"));
}

TEST_F(GridsDocument, HasThePictureOfAPipeline) {
  const std::string text =
      map("--ranks 16 parallel.pipeline=2 parallel.context=2 parallel.tensor=2 "
          "parallel.expert=4 parallel.expert_tensor=2");
  expect_on_page(block(text, "attention: brackets", "stages:"));
  // "rank 3 sends its activations to rank 11"
  EXPECT_NE(text.find("rank 3: "), std::string::npos);
  const std::string three = text.substr(text.find("rank 3: "), 2000);
  EXPECT_NE(three.find("from none, to 11:"), std::string::npos) << three;
}

}  // namespace
}  // namespace pleat::test
