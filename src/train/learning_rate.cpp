// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/learning_rate.hpp"

#include <cmath>
#include <numbers>

#include "pleat/base/error.hpp"

namespace pleat::train {
namespace {

/// 1 at the start of the decay, 0 at its end.
double remaining_share(Schedule schedule, double progress) {
  switch (schedule) {
    case Schedule::kCosine:
      return (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
    case Schedule::kLinear:
      return 1.0 - progress;
    case Schedule::kConstant:
      return 1.0;
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown learning-rate schedule");
}

}  // namespace

double learning_rate(const OptimizerSection& optimizer, std::int64_t steps,
                     std::int64_t step) {
  PLEAT_ASSERT(step >= 1, "steps count from 1, got {}", step);
  const std::int64_t warmup = optimizer.warmup;
  if (step <= warmup) {
    return optimizer.lr * static_cast<double>(step) / static_cast<double>(warmup);
  }
  const double progress = step >= steps ? 1.0
                                        : static_cast<double>(step - warmup) /
                                              static_cast<double>(steps - warmup);
  return optimizer.min_lr + (optimizer.lr - optimizer.min_lr) *
                                remaining_share(optimizer.schedule, progress);
}

}  // namespace pleat::train
