// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The samples of a step, on the host as a whole and on the device one micro-batch at
/// a time.
///
/// Legend: B sequences of the global batch, S tokens of a sequence, T tokens of a micro-batch.

#include <cstdint>

#include "pleat/io/token_data.hpp"
#include "pleat/model/context.hpp"

namespace pleat::train {

class BatchLoader {
 public:
  /// \param micro   sequences of a micro-batch
  /// \param global  sequences held at once, a multiple of micro
  BatchLoader(std::int64_t sequence, std::int64_t micro, std::int64_t global);

  /// \brief Reads training samples first .. first + global - 1.
  void load_training(const io::TokenData& data, std::int64_t first);
  /// \brief Reads held-out samples; only the first `count` sequences carry loss.
  void load_validation(const io::TokenData& data, std::int64_t first, std::int64_t count);

  /// \brief Tokens of the loaded samples that carry loss.
  std::int64_t valid_tokens() const;
  std::int64_t micro_batches() const { return global_ / micro_; }
  /// \brief Copies a micro-batch to the device; its views are overwritten by the next call.
  model::MicroBatch stage(const ExecSpace& exec, std::int64_t micro_batch);

 private:
  std::int64_t sequence_;
  std::int64_t micro_;
  std::int64_t global_;
  io::HostBatch host_;
  DeviceView<std::int32_t, 1> tokens_T_;
  DeviceView<std::int32_t, 1> labels_T_;
  DeviceView<std::uint8_t, 1> loss_mask_T_;
  DeviceView<std::uint8_t, 1> real_T_;
};

}  // namespace pleat::train
