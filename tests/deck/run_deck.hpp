// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Loading real decks in tests.

#include <sstream>

#include "deck/deck_test.hpp"
#include "pleat/io/deck.hpp"
#include "pleat/train/deck_keys.hpp"
#include "pleat/train/run_config.hpp"

namespace pleat::test {

inline constexpr const char* kSmallDeck = R"([run]
steps = 10
[model]
layers = 2
hidden = 64
heads = 4
vocab = 256
[moe]
experts = 4
ffn = 32
[batch]
sequence = 16
[data]
format = "synthetic"
)";

class RunDeckTest : public ScratchFolder {
 protected:
  train::RunConfig load(const std::string& text,
                        const std::vector<std::string>& overrides = {}) const {
    return train::load_run_config(write("try.toml", text), overrides);
  }
};

inline std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

}  // namespace pleat::test
