// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/progress.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace pleat::train {
namespace {

/// Mean of the values that fall into each of the columns.
std::vector<double> column_means(std::span<const double> values, std::size_t width) {
  const std::size_t columns = std::min(width, values.size());
  std::vector<double> means(columns, 0.0);
  for (std::size_t c = 0; c < columns; ++c) {
    const std::size_t begin = c * values.size() / columns;
    const std::size_t end = (c + 1) * values.size() / columns;
    for (std::size_t i = begin; i < end; ++i) means[c] += values[i];
    means[c] /= static_cast<double>(end - begin);
  }
  return means;
}

std::string bar(std::int64_t step, std::int64_t steps) {
  constexpr std::int64_t kWidth = 20;
  const std::int64_t done = steps > 0 ? std::min(kWidth, step * kWidth / steps) : kWidth;
  std::string text(static_cast<std::size_t>(kWidth), ' ');
  std::fill_n(text.begin(), done, '=');
  if (done < kWidth) text[static_cast<std::size_t>(done)] = '>';
  return " [" + text + "]";
}

}  // namespace

std::string format_duration(double seconds) {
  const auto total = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  const std::int64_t s = total % 60;
  const std::int64_t m = total / 60 % 60;
  const std::int64_t h = total / 3600;
  if (total < 60) return fmt::format("{} s", s);
  if (h == 0) return fmt::format("{}:{:02}", m, s);
  if (h < 48) return fmt::format("{}:{:02}:{:02}", h, m, s);
  return fmt::format("{} d {:02}:{:02}", h / 24, h % 24, m);
}

std::string format_count(double value) {
  constexpr std::array<const char*, 6> kUnits{"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  // 999.5 would show as 1e+03.
  while (std::abs(value) >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  return fmt::format("{:.3g}{}", value, kUnits[unit]);
}

std::string sparkline(std::span<const double> values, std::size_t width) {
  constexpr std::array<const char*, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const std::vector<double> means = column_means(values, width);
  double low = INFINITY;
  double high = -INFINITY;
  for (const double mean : means) {
    if (!std::isfinite(mean)) continue;
    low = std::min(low, mean);
    high = std::max(high, mean);
  }
  std::string line;
  for (const double mean : means) {
    if (!std::isfinite(mean)) {
      line += 'x';
      continue;
    }
    const double share = high > low ? (mean - low) / (high - low) : 0.0;
    line += kBlocks[static_cast<std::size_t>(std::min(7.0, share * 8.0))];
  }
  return line;
}

void Progress::add(std::int64_t step, double wall_seconds) {
  constexpr double kLeastWeight = 0.05;
  ++steps_seen_;
  const double weight = std::max(kLeastWeight, 1.0 / static_cast<double>(steps_seen_));
  seconds_per_step_ += weight * (wall_seconds - seconds_per_step_);
  step_ = step;
}

double Progress::seconds_left() const {
  return static_cast<double>(std::max<std::int64_t>(0, steps_ - step_)) *
         seconds_per_step_;
}

std::string Progress::line(const StepMetrics& metrics, bool with_bar) const {
  std::string text = fmt::format("step {}/{}", metrics.step, steps_);
  if (with_bar) text += bar(metrics.step, steps_);
  text += fmt::format("  loss {:.4f}  lr {:.2e}  norm {:.3g}  {} tokens/s", metrics.loss,
                      metrics.learning_rate, metrics.grad_norm,
                      format_count(metrics.tokens_per_second));
  if (metrics.mfu) text += fmt::format("  MFU {:.0f} %", 100.0 * *metrics.mfu);
  return text + fmt::format("  ETA {}", format_duration(seconds_left()));
}

}  // namespace pleat::train
