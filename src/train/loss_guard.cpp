// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/loss_guard.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "pleat/base/error.hpp"

namespace pleat::train {
namespace {

/// The loss above which there is a spike: `factor` times the median, or as far above a
/// negative one as if its sign were positive.
double spike_bound(double median, double factor) {
  return median >= 0.0 ? factor * median : (2.0 - factor) * median;
}

}  // namespace

LossGuard::LossGuard(const GuardSection& section) : section_(section) {}

double LossGuard::median() const {
  const std::size_t count = recent_.size();
  if (count == 0 || count < static_cast<std::size_t>(section_.spike_window)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::vector<double> losses = recent_;
  const auto middle = losses.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(losses.begin(), middle, losses.end());
  if (count % 2 == 1) return *middle;
  return 0.5 * (*middle + *std::max_element(losses.begin(), middle));
}

Verdict LossGuard::judge(double loss, bool finite) {
  if (!finite || !std::isfinite(loss)) return intervene(section_.non_finite);
  if (section_.spike != GuardAction::kIgnore &&
      loss > spike_bound(median(), section_.spike_factor)) {
    return intervene(section_.spike);
  }
  recent_.push_back(loss);
  if (recent_.size() > static_cast<std::size_t>(section_.spike_window)) {
    recent_.erase(recent_.begin());
  }
  return Verdict::kAccept;
}

Verdict LossGuard::intervene(GuardAction action) {
  if (skipped_ + rollbacks_ >= section_.most) return Verdict::kStop;
  switch (action) {
    case GuardAction::kSkip:
      ++skipped_;
      return Verdict::kSkip;
    case GuardAction::kRollback:
      ++rollbacks_;
      return Verdict::kRollback;
    case GuardAction::kStop:
      return Verdict::kStop;
    case GuardAction::kIgnore:
      break;
  }
  PLEAT_FAIL(InternalError, "PL0100", "an intervention that is none");
}

void LossGuard::restore(std::vector<double> recent_losses) {
  recent_ = std::move(recent_losses);
  const auto window = static_cast<std::size_t>(section_.spike_window);
  if (recent_.size() > window) {
    recent_.erase(recent_.begin(), recent_.end() - static_cast<std::ptrdiff_t>(window));
  }
}

void LossGuard::restore(std::vector<double> recent_losses, std::int64_t skipped,
                        std::int64_t rollbacks) {
  restore(std::move(recent_losses));
  skipped_ = skipped;
  rollbacks_ = rollbacks;
}

}  // namespace pleat::train
