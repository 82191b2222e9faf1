// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Kokkos Tools see every phase of a run by its name.

#include <fstream>
#include <set>
#include <string>

#include "pleat/base/phase.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

constexpr const char* kDeck = R"(
[run]
steps = 2
output = "out"
[model]
layers = 2
hidden = 16
heads = 2
vocab = 32
ffn = 24
[moe]
experts = 4
ffn = 8
dense_layers = [0]
[batch]
sequence = 8
[data]
format = "synthetic"
)";

class Regions : public ProgramTest {};

TEST_F(Regions, EveryPhaseIsNamed) {
  write("deck.toml", kDeck);
  const CommandResult run =
      pleat("train deck.toml", "KOKKOS_TOOLS_LIBS=" PLEAT_REGION_TOOL " PLEAT_REGIONS=" +
                                   path("regions.txt"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  std::ifstream file(path("regions.txt"));
  std::set<std::string> seen;
  for (std::string name; std::getline(file, name);) seen.insert(name);
  for (std::size_t i = 0; i < kPhases; ++i) {
    const char* name = phase_name(static_cast<Phase>(i));
    EXPECT_TRUE(seen.contains(name)) << name;
  }
}

}  // namespace
}  // namespace pleat::test
