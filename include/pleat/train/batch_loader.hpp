// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The samples of a step on this rank's device, micro-batch by micro-batch.
///
/// The M micro-batches of a step are numbered over the global batch; data rank d takes numbers
/// d, d + DP, d + 2 DP, ... in rounds. A rank without a micro-batch in the last round gets one
/// that is all padding, so that all ranks take part in the same exchanges. Of each sequence
/// a rank loads the positions of its context rank.
///
/// Legend: B sequences of a micro-batch, S positions held of each, U = B S rows.

#include <cstdint>
#include <string>

#include "pleat/base/copy.hpp"
#include "pleat/comm/grid.hpp"
#include "pleat/io/token_data.hpp"
#include "pleat/model/context.hpp"

namespace pleat::train {

/// \brief One array of all rounds, [rounds, B, S], on the device, and the memory from which it is
/// copied there; on a host they are one.
template <class T>
struct StagedRounds {
  StagedRounds(const std::string& label, std::int64_t rounds, std::int64_t micro,
               std::int64_t held)
      : device_XBS(label, rounds, micro, held), host_XBS(staging_mirror<T, 3>(device_XBS)) {}

  DeviceView<T, 3> device_XBS;
  StagingView<T, 3> host_XBS;

  /// \brief To the device, queued.
  void copy(const ExecSpace& exec) const { copy_tensor(exec, device_XBS, host_XBS); }
};

class BatchLoader {
 public:
  /// \param sequence       length of whole sequences
  /// \param micro          sequences of a micro-batch
  /// \param micro_batches  loaded at once, over all data ranks
  BatchLoader(const comm::Grid& grid, std::int64_t sequence, std::int64_t micro,
              std::int64_t micro_batches);

  /// \brief Reads training samples from number `first` on; their way to the device is queued. The
  /// caller has waited for the step that the last ones were loaded for.
  void load_training(const io::TokenData& data, std::int64_t first);
  /// \brief Reads held-out samples; only the first `count` sequences carry loss.
  void load_validation(const io::TokenData& data, std::int64_t first, std::int64_t count);

  /// \brief Tokens of all loaded samples that carry loss. Collective over dp.
  std::int64_t valid_tokens() const;
  /// \brief Of tokens, labels and masks at their places in the global batch; the sums of all
  /// data and context ranks are the batch's, whatever the grid. Padding rounds add nothing.
  std::int64_t checksum() const { return checksum_; }
  std::int64_t micro_batches() const { return micro_batches_; }
  /// \brief Micro-batches of each data rank.
  std::int64_t rounds() const { return rounds_; }
  /// \brief Global number of this rank's micro-batch of a round; micro_batches() or more:
  /// padding.
  std::int64_t number(std::int64_t round) const;
  /// \brief Views that the next load overwrites.
  model::MicroBatch batch(std::int64_t round) const;

 private:
  enum class Split { kTraining, kValidation };
  void load(const io::TokenData& data, Split split, std::int64_t first, std::int64_t count);
  void mask_from(std::int64_t sequence);
  void pick_round(std::int64_t round);
  std::uint64_t round_checksum(std::int64_t round) const;

  const comm::Grid& grid_;
  std::int64_t sequence_;
  std::int64_t micro_;
  std::int64_t micro_batches_;
  std::int64_t rounds_;
  std::int64_t held_;  ///< S
  std::int64_t valid_ = 0;  ///< of this data rank
  std::int64_t checksum_ = 0;
  io::HostBatch host_;      ///< one micro-batch
  HostView<std::int64_t, 1> positions_S_;
  ExecSpace exec_;
  StagedRounds<std::int32_t> tokens_;
  StagedRounds<std::int32_t> labels_;
  StagedRounds<std::uint8_t> loss_mask_;
  StagedRounds<std::uint8_t> real_;
};

}  // namespace pleat::train
