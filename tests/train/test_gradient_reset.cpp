// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A step takes nothing over from the gradients of the step before: some of them are
/// cleared, the first backward pass overwrites the others.

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "equivalence/mappings.hpp"
#include "pleat/base/copy.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/grid_choice.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

/// Three tokens, again and again: experts are left without any.
class FewTokens final : public io::TokenData {
 public:
  std::int64_t training_samples() const override { return 64; }
  std::int64_t validation_samples() const override { return 1; }
  void training_batch(std::int64_t first, const io::HostBatch& batch) const override {
    for (std::size_t i = 0; i < batch.tokens_BS.size(); ++i) {
      const auto place = static_cast<std::int64_t>(i) + first;
      batch.tokens_BS.data()[i] = static_cast<std::int32_t>(place % 3);
      batch.labels_BS.data()[i] = static_cast<std::int32_t>((place + 1) % 3);
      batch.loss_mask_BS.data()[i] = batch.real_BS.data()[i] = 1;
    }
  }
  void validation_batch(std::int64_t first, const io::HostBatch& batch) const override {
    training_batch(first, batch);
  }
  std::string description() const override { return "three tokens"; }
};

/// All kinds of parameters, and several micro-batches in a step.
std::vector<train::RunConfig> models() {
  train::RunConfig mixtral = small_mixtral();
  mixtral.model.moe.experts = 32;
  train::RunConfig tied = small_qwen2_moe();
  tied.model.tied = true;
  tied.model.qkv_bias = true;
  tied.model.qk_norm = true;
  tied.model.moe_layer[1] = false;
  tied.precision.recompute = plan::Recompute::kFull;
  return {mixtral, small_qwen2_moe(), tied};
}

template <class T>
std::vector<Master<T>> weights_after_steps(const train::RunConfig& config, bool spoil) {
  const comm::Grid grid(world(), train::grid_shape_of(config, 1));
  train::Engine<T> engine(config, grid);
  engine.initialise();
  const FewTokens data;
  for (std::int64_t step = 1; step <= 3; ++step) {
    if (spoil) {
      fill_tensor(engine.store().whole_gradients().flat(),
                  std::numeric_limits<Gradient<T>>::quiet_NaN());
    }
    engine.train_step(step, 1.0e-3, data, step * config.batch.global);
  }
  const auto weights = engine.store().whole_weights().flat();
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), weights);
  return {host.data(), host.data() + host.size()};
}

template <class T>
class GradientReset : public testing::Test {};
using Types = testing::Types<float, double, Bf16>;
TYPED_TEST_SUITE(GradientReset, Types);

TYPED_TEST(GradientReset, NothingIsTakenOverFromTheStepBefore) {
  using T = TypeParam;
  for (const train::RunConfig& config : models()) {
    const auto clean = weights_after_steps<T>(config, false);
    EXPECT_EQ(weights_after_steps<T>(config, true), clean);
    EXPECT_NE(clean.front(), clean.back()) << "a comparison of nothing";
  }
}

}  // namespace
}  // namespace pleat::test
