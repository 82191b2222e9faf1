// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Splits the layers over the virtual stages by dynamic programming.
#include <algorithm>
#include <limits>

#include "pleat/base/error.hpp"
#include "pleat/train/pipeline_schedule.hpp"

namespace pleat::train {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

/// FLOPs of consecutive layers. The embedding is a look-up and counts nothing.
class LayerCosts {
 public:
  LayerCosts(const plan::ModelConfig& config, std::int64_t sequence)
      : head_(plan::head_flops_per_token(config)) {
    for (const bool is_moe : config.moe_layer) {
      before_.push_back(before_.back() +
                        plan::layer_flops_per_token(config, is_moe, sequence));
    }
  }

  std::size_t layers() const { return before_.size() - 1; }
  /// Of the layers [first, end), and of the head after the last stage.
  double of(std::size_t first, std::size_t end, bool is_last) const {
    return before_[end] - before_[first] + (is_last ? head_ : 0.0);
  }

 private:
  std::vector<double> before_{0.0};
  double head_;
};

/// A way to split the first layers over the first virtual stages.
struct Split {
  double value = kImpossible;
  std::size_t first = 0;  ///< where the last of these stages begins
};

/// The best split by `combine(value of the stages before, cost of a stage)`, least first.
template <class Combine>
class BestSplit {
 public:
  BestSplit(const LayerCosts& costs, std::size_t stages, const Combine& combine)
      : layers_(costs.layers()), best_(stages + 1) {
    // An empty stage only where there are not enough layers.
    const std::size_t fewest = stages <= layers_ ? 1 : 0;
    best_[0].resize(layers_ + 1);
    best_[0][0].value = 0.0;
    for (std::size_t stage = 1; stage <= stages; ++stage) {
      best_[stage].resize(layers_ + 1);
      for (std::size_t end = fewest; end <= layers_; ++end) {
        Split& split = best_[stage][end];
        for (std::size_t first = 0; first + fewest <= end; ++first) {
          const double value = combine(best_[stage - 1][first].value,
                                       costs.of(first, end, stage == stages));
          if (value < split.value) split = {value, first};
        }
      }
    }
  }

  double value() const { return best_.back()[layers_].value; }
  std::vector<std::int64_t> sizes() const {
    std::vector<std::int64_t> sizes(best_.size() - 1);
    std::size_t end = layers_;
    for (std::size_t stage = sizes.size(); stage > 0; --stage) {
      const std::size_t first = best_[stage][end].first;
      sizes[stage - 1] = static_cast<std::int64_t>(end - first);
      end = first;
    }
    return sizes;
  }

 private:
  std::size_t layers_;
  std::vector<std::vector<Split>> best_;  ///< [stages][layers]
};

}  // namespace

std::vector<std::int64_t> balanced_layout(const plan::ModelConfig& config,
                                          std::int64_t sequence,
                                          std::int64_t virtual_stages) {
  PLEAT_ASSERT(virtual_stages >= 1, "{} virtual stages", virtual_stages);
  const LayerCosts costs(config, sequence);
  const auto stages = static_cast<std::size_t>(virtual_stages);
  const BestSplit slowest(
      costs, stages, [](double before, double cost) { return std::max(before, cost); });
  // Of the splits that are as fast, the most even one: it needs the least memory.
  const double limit = slowest.value() * (1.0 + 1.0e-12);
  const BestSplit even(costs, stages, [&](double before, double cost) {
    return cost <= limit ? before + cost * cost : kImpossible;
  });
  return even.sizes();
}

}  // namespace pleat::train
