// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Text from a checkpoint, one token after the other.

#include <cstdint>
#include <string>
#include <vector>

namespace pleat::train {

struct GenerateOptions {
  std::string checkpoint;
  std::string prompt = "\n";
  std::string tokenizer = "bytes";
  std::int64_t tokens = 200;   ///< to generate
  std::int64_t context = 256;  ///< tokens that the model looks back at
  double temperature = 0.8;    ///< 0: the most probable token each time
  std::int64_t top_k = 0;      ///< choose among so many of the most probable; 0: all
  std::uint64_t seed = 1;
};

/// \brief The prompt's continuation. The same options give the same text.
/// \throws InputError PL0930 a prompt or tokenizer that does not fit the model, and what
///   reading the checkpoint throws
std::string generate(const GenerateOptions& options);

/// \brief The index of the chosen logit: softmax(logits / temperature) over the top_k largest,
/// inverted at `uniform` in (0, 1); the largest logit (the first of equal ones) at
/// temperature 0.
std::int64_t sample_token(const std::vector<double>& logits, double temperature,
                          std::int64_t top_k, double uniform);

}  // namespace pleat::train
