// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Training samples by number: the order depends on the seed alone, never on the
/// mapping or on restarts.
///
/// B sequences of a micro-batch, S tokens of a sequence.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pleat/base/types.hpp"

namespace pleat::io {

enum class DataFormat { kText, kMegatron, kHdf5, kSynthetic };

/// \brief Section [data] of a deck.
struct DataConfig {
  DataFormat format = DataFormat::kText;
  std::vector<std::string> paths;
  std::vector<double> weights;      ///< of the blend; empty: proportional to their tokens
  std::string dataset = "tokens";   ///< hdf5: [..., S + 1] integers
  std::string loss_mask;            ///< hdf5: optional dataset [..., S], 0: carries no loss
  std::string lengths;              ///< hdf5: optional dataset [...], real tokens of a sample
  std::string tokenizer = "bytes";
  bool shuffle = true;
  double split = 0.0;               ///< share of the samples held out for validation
  std::int64_t synthetic_samples = 1024;
};

/// \brief Some samples, on the host.
struct HostBatch {
  HostView<std::int32_t, 2> tokens_BS;
  HostView<std::int32_t, 2> labels_BS;     ///< labels(b, s) follows tokens(b, s)
  HostView<std::uint8_t, 2> loss_mask_BS;  ///< 1: the position carries loss
  HostView<std::uint8_t, 2> real_BS;       ///< 0: padding beyond the end of the sample
};

/// \brief An endless, numbered sequence of training samples and a finite one for validation.
class TokenData {
 public:
  virtual ~TokenData() = default;
  /// \brief Training samples in one epoch.
  virtual std::int64_t training_samples() const = 0;
  virtual std::int64_t validation_samples() const = 0;
  /// \brief Training samples first, first + 1, ... of the run, across epochs. The number of
  /// the next sample is all that a checkpoint must keep.
  virtual void training_batch(std::int64_t first, const HostBatch& batch) const = 0;
  /// \brief Held-out samples by number, modulo their count.
  virtual void validation_batch(std::int64_t first, const HostBatch& batch) const = 0;
  /// \brief For the log: sources, samples, tokens.
  virtual std::string description() const = 0;
  /// \brief A line for each source that tells whether it is the same as another time, wherever
  /// it lies: its samples, and a hash of the tokens at its beginning and end. Empty: not known.
  virtual std::string identity() const { return {}; }
};

/// \brief Opens and checks the sources.
/// \param vocab  every token must be below it
/// \throws InputError PL05xx: missing, empty, truncated, malformed, token beyond the vocabulary
std::unique_ptr<TokenData> open_token_data(const DataConfig& config, std::int64_t sequence,
                                           std::int64_t vocab, std::uint64_t seed);

}  // namespace pleat::io
