// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pleat::test {

/// \brief A small sound deck that the tests break by overrides.
inline constexpr const char* kSoundDeck = R"(
[run]
steps = 3
output = "out"
[model]
layers = 2
hidden = 32
heads = 4
kv_heads = 2
vocab = 256
[moe]
experts = 4
ffn = 24
[batch]
sequence = 16
micro = 2
global = 2
[data]
format = "synthetic"
)";

}  // namespace pleat::test
