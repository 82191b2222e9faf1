// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Making batch scripts in a folder with a small deck.

#include <iterator>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "support/program.hpp"

namespace pleat::test {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class BatchTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write("deck.toml", R"(
[run]
name = "austen"
steps = 100
[model]
layers = 2
hidden = 64
heads = 8
vocab = 256
[moe]
experts = 48
ffn = 32
[batch]
sequence = 64
global = 16
[parallel]
tensor = 2
expert = 4
[data]
format = "synthetic"
)");
  }

  CommandResult batch(const std::string& arguments) const {
    return pleat("batch deck.toml --time 4h " + arguments);
  }
};

}  // namespace pleat::test
