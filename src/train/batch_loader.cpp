// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/batch_loader.hpp"

#include <numeric>

#include "pleat/base/error.hpp"

namespace pleat::train {
namespace {

template <class T>
void copy_rows(const ExecSpace& exec, const HostView<T, 2>& host_BS, std::int64_t first_row,
               const DeviceView<T, 1>& device_T) {
  const auto row_size = static_cast<std::int64_t>(host_BS.extent(1));
  const HostView<T, 1> source(host_BS.data() + first_row * row_size, device_T.extent(0));
  Kokkos::deep_copy(exec, device_T, source);
}

}  // namespace

BatchLoader::BatchLoader(std::int64_t sequence, std::int64_t micro, std::int64_t global)
    : sequence_(sequence),
      micro_(micro),
      global_(global),
      host_{HostView<std::int32_t, 2>("pleat::train::tokens", global, sequence),
            HostView<std::int32_t, 2>("pleat::train::labels", global, sequence),
            HostView<std::uint8_t, 2>("pleat::train::loss_mask", global, sequence),
            HostView<std::uint8_t, 2>("pleat::train::real", global, sequence)},
      tokens_T_("pleat::train::micro_tokens", micro * sequence),
      labels_T_("pleat::train::micro_labels", micro * sequence),
      loss_mask_T_("pleat::train::micro_loss_mask", micro * sequence),
      real_T_("pleat::train::micro_real", micro * sequence) {
  PLEAT_ASSERT(global % micro == 0, "{} sequences are not whole micro-batches of {}", global,
               micro);
}

void BatchLoader::load_training(const io::TokenData& data, std::int64_t first) {
  data.training_batch(first, host_);
}

void BatchLoader::load_validation(const io::TokenData& data, std::int64_t first,
                                  std::int64_t count) {
  data.validation_batch(first, host_);
  for (std::int64_t b = count; b < global_; ++b) {
    for (std::int64_t s = 0; s < sequence_; ++s) {
      host_.loss_mask_BS(b, s) = 0;
      host_.real_BS(b, s) = 0;
    }
  }
}

std::int64_t BatchLoader::valid_tokens() const {
  const std::uint8_t* mask = host_.loss_mask_BS.data();
  return std::accumulate(mask, mask + host_.loss_mask_BS.size(), std::int64_t{0});
}

model::MicroBatch BatchLoader::stage(const ExecSpace& exec, std::int64_t micro_batch) {
  const std::int64_t first_row = micro_batch * micro_;
  copy_rows<std::int32_t>(exec, host_.tokens_BS, first_row, tokens_T_);
  copy_rows<std::int32_t>(exec, host_.labels_BS, first_row, labels_T_);
  copy_rows<std::uint8_t>(exec, host_.loss_mask_BS, first_row, loss_mask_T_);
  copy_rows<std::uint8_t>(exec, host_.real_BS, first_row, real_T_);
  return {.sequences = micro_,
          .sequence = sequence_,
          .tokens_T = tokens_T_,
          .labels_T = labels_T_,
          .loss_mask_T = loss_mask_T_,
          .real_T = real_T_};
}

}  // namespace pleat::train
