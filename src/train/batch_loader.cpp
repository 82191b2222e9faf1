// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/batch_loader.hpp"

#include <algorithm>
#include <numeric>

#include "pleat/base/error.hpp"
#include "pleat/io/checksum.hpp"
#include "pleat/model/context_attention.hpp"

namespace pleat::train {
namespace {

using comm::Axis;

/// The held positions of each sequence.
template <class T>
void pick_positions(const HostView<T, 2>& host_BL, const HostView<std::int64_t, 1>& positions_S,
                    std::int64_t round, const StagingView<T, 3>& picked_XBS) {
  for (std::size_t b = 0; b < host_BL.extent(0); ++b) {
    for (std::size_t s = 0; s < positions_S.extent(0); ++s) {
      picked_XBS(round, b, s) = host_BL(b, positions_S(s));
    }
  }
}

/// Rows first .. first + count - 1 of a round.
template <class T>
DeviceView<const T, 1> rows(const StagedRounds<T>& all, std::int64_t round,
                            std::int64_t first, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(all.device_XBS.extent(1) * all.device_XBS.extent(2));
  return DeviceView<const T, 1>(all.device_XBS.data() + round * size + first, count);
}

}  // namespace

BatchLoader::BatchLoader(const comm::Grid& grid, std::int64_t sequence, std::int64_t micro,
                         std::int64_t micro_batches)
    : grid_(grid),
      sequence_(sequence),
      micro_(micro),
      micro_batches_(micro_batches),
      rounds_((micro_batches + grid.degree(Axis::kData) - 1) / grid.degree(Axis::kData)),
      held_(sequence / grid.degree(Axis::kContext)),
      host_{HostView<std::int32_t, 2>("pleat::train::tokens", micro, sequence),
            HostView<std::int32_t, 2>("pleat::train::labels", micro, sequence),
            HostView<std::uint8_t, 2>("pleat::train::loss_mask", micro, sequence),
            HostView<std::uint8_t, 2>("pleat::train::real", micro, sequence)},
      positions_S_("pleat::train::positions", held_),
      tokens_("pleat::train::step_tokens", rounds_, micro, held_),
      labels_("pleat::train::step_labels", rounds_, micro, held_),
      loss_mask_("pleat::train::step_loss_mask", rounds_, micro, held_),
      real_("pleat::train::step_real", rounds_, micro, held_) {
  const auto positions = model::context_positions(sequence, grid.degree(Axis::kContext),
                                                  grid.coordinate(Axis::kContext));
  std::copy(positions.begin(), positions.end(), positions_S_.data());
}

std::int64_t BatchLoader::number(std::int64_t round) const {
  return round * grid_.degree(Axis::kData) + grid_.coordinate(Axis::kData);
}

void BatchLoader::load_training(const io::TokenData& data, std::int64_t first) {
  load(data, Split::kTraining, first, micro_batches_ * micro_);
}

void BatchLoader::load_validation(const io::TokenData& data, std::int64_t first,
                                  std::int64_t count) {
  exec_.fence("pleat::train::BatchLoader: the last ones may still be on their way");
  load(data, Split::kValidation, first, count);
}

void BatchLoader::load(const io::TokenData& data, Split split, std::int64_t first,
                       std::int64_t count) {
  valid_ = 0;
  std::uint64_t checksum = 0;
  for (std::int64_t round = 0; round < rounds_; ++round) {
    const std::int64_t sequence = number(round) * micro_;
    if (sequence < count) {
      split == Split::kTraining ? data.training_batch(first + sequence, host_)
                                : data.validation_batch(first + sequence, host_);
    }
    mask_from(std::clamp<std::int64_t>(count - sequence, 0, micro_));
    const std::uint8_t* mask = host_.loss_mask_BS.data();
    valid_ += std::accumulate(mask, mask + host_.loss_mask_BS.size(), std::int64_t{0});
    if (number(round) < micro_batches_) checksum += round_checksum(round);
    pick_round(round);
  }
  tokens_.copy(exec_);
  labels_.copy(exec_);
  loss_mask_.copy(exec_);
  real_.copy(exec_);
  checksum_ = static_cast<std::int64_t>(checksum);
}

std::uint64_t BatchLoader::round_checksum(std::int64_t round) const {
  std::uint64_t sum = 0;
  for (std::int64_t b = 0; b < micro_; ++b) {
    for (std::int64_t s = 0; s < held_; ++s) {
      const std::int64_t position = positions_S_(s);
      const auto index = static_cast<std::uint64_t>(
          (number(round) * micro_ + b) * sequence_ + position);
      const auto tokens =
          static_cast<std::uint64_t>(static_cast<std::uint32_t>(host_.tokens_BS(b, position)));
      const auto labels =
          static_cast<std::uint64_t>(static_cast<std::uint32_t>(host_.labels_BS(b, position)));
      sum += io::checksum_term(2 * index, tokens << 32 | labels);
      sum += io::checksum_term(2 * index + 1,
                               static_cast<std::uint64_t>(2 * host_.loss_mask_BS(b, position) +
                                                          host_.real_BS(b, position)));
    }
  }
  return sum;
}

/// Sequences from this one on are padding.
void BatchLoader::mask_from(std::int64_t sequence) {
  for (std::int64_t b = sequence; b < micro_; ++b) {
    for (std::int64_t s = 0; s < sequence_; ++s) {
      host_.loss_mask_BS(b, s) = 0;
      host_.real_BS(b, s) = 0;
    }
  }
}

void BatchLoader::pick_round(std::int64_t round) {
  pick_positions<std::int32_t>(host_.tokens_BS, positions_S_, round, tokens_.host_XBS);
  pick_positions<std::int32_t>(host_.labels_BS, positions_S_, round, labels_.host_XBS);
  pick_positions<std::uint8_t>(host_.loss_mask_BS, positions_S_, round, loss_mask_.host_XBS);
  pick_positions<std::uint8_t>(host_.real_BS, positions_S_, round, real_.host_XBS);
}

std::int64_t BatchLoader::valid_tokens() const {
  return grid_.group(comm::GroupName::kData).all_reduce_value(valid_, comm::Reduction::kSum);
}

model::MicroBatch BatchLoader::batch(std::int64_t round) const {
  const std::int64_t all = micro_ * held_;
  const std::int64_t own = all / grid_.degree(Axis::kTensor);
  const std::int64_t first = grid_.coordinate(Axis::kTensor) * own;
  return {.sequences = micro_,
          .sequence = held_,
          .first_row = first,
          .tokens_U = rows<std::int32_t>(tokens_, round, 0, all),
          .labels_U = rows<std::int32_t>(labels_, round, 0, all),
          .loss_mask_U = rows<std::uint8_t>(loss_mask_, round, 0, all),
          .real_T = rows<std::uint8_t>(real_, round, first, own)};
}

}  // namespace pleat::train
