// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief All legal mappings of a model over some ranks, and two small models.

#include <cstdint>
#include <string>
#include <vector>

#include "pleat/io/token_data.hpp"
#include "pleat/train/run_config.hpp"

namespace pleat::test {

/// \brief 4 MoE layers, 8 experts, 8 heads of which 2 are key/value heads, odd vocabulary.
train::RunConfig small_mixtral();
/// \brief Biases, shared expert with gate, a dense layer, tied embeddings.
train::RunConfig small_qwen2_moe();

/// \brief The model, or where three divides the ranks the same with 6 heads and 6 experts and
/// with sizes that three and six divide.
train::RunConfig cut_for(train::RunConfig config, std::int64_t ranks);

/// \brief Every mapping that the rules (legality.hpp) allow over so many ranks; dispatcher,
/// exchange of keys and values, schedule, sharding and recomputation are drawn for each.
std::vector<train::RunConfig> all_mappings(const train::RunConfig& config, std::int64_t ranks);

/// \brief Each of those with both dispatchers, both exchanges, and one to three chunks.
std::vector<train::RunConfig> all_options(const train::RunConfig& config,
                                          std::int64_t ranks);

/// \brief "pipeline=2 data=2 ... alltoall ring 1f1b".
std::string mapping_text(const train::RunConfig& config, std::int64_t ranks);

/// \brief Random tokens; some samples are padded at the end and loss masks are ragged, some
/// samples carry no loss at all.
class RaggedTokens final : public io::TokenData {
 public:
  RaggedTokens(std::int64_t vocab, std::uint64_t seed) : vocab_(vocab), seed_(seed) {}
  std::int64_t training_samples() const override { return 1 << 20; }
  std::int64_t validation_samples() const override { return 7; }
  void training_batch(std::int64_t first, const io::HostBatch& batch) const override;
  void validation_batch(std::int64_t first, const io::HostBatch& batch) const override;
  std::string description() const override { return "ragged tokens"; }

 private:
  void fill_sample(std::uint64_t sample, std::int64_t row, const io::HostBatch& batch) const;
  std::int64_t vocab_;
  std::uint64_t seed_;
};

}  // namespace pleat::test
