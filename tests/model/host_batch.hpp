// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Batches and tensors in host memory. Legend: T = B S tokens.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pleat::test {

/// \brief By name, row-major.
template <class S>
using Tensors = std::map<std::string, std::vector<S>>;
using HostTensors = Tensors<double>;

/// \brief B sequences of S tokens; the members are those of model::MicroBatch.
struct HostBatch {
  std::int64_t sequences = 0;
  std::int64_t sequence = 0;
  std::vector<std::int32_t> tokens_T;
  std::vector<std::int32_t> labels_T;
  std::vector<std::uint8_t> loss_mask_T;
  std::vector<std::uint8_t> real_T;

  std::int64_t tokens() const { return sequences * sequence; }
  /// \brief Tokens that carry loss.
  std::int64_t valid() const;
  /// \brief The last `count` positions of a sequence become padding, without loss.
  void pad(std::int64_t which, std::int64_t count);
  /// \brief Sequences first .. first + count - 1.
  HostBatch part(std::int64_t first, std::int64_t count) const;
};

/// \brief Random tokens and labels, all real and with loss.
HostBatch random_batch(std::int64_t sequences, std::int64_t sequence, std::int64_t vocab,
                       std::uint64_t seed);

}  // namespace pleat::test
