// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "grid_report.hpp"
#include "pleat/base/error.hpp"

namespace pleat::cli {
namespace {

using comm::Axis;
using Axes = std::array<Axis, 4>;

/// One stage of a grid: a line for each replica, a bracket for each coordinate of the
/// third axis, in it the ranks along the fastest one.
class StagePicture {
 public:
  StagePicture(const comm::GridShape& grid, const Axes& axes, std::int64_t stage)
      : grid_(grid), axes_(axes), stage_(stage) {
    digits_ = fmt::format("{}", grid.ranks() - 1).size();
    inner_ = degree(3) * static_cast<std::int64_t>(digits_ + 1) + 1;
  }

  std::string text() const {
    std::string text = heading();
    for (std::int64_t line = 0; line < degree(1); ++line) {
      text += fmt::format("    {:<{}}", fmt::format("{} {}", axis_name(axes_[1]), line),
                          kLabel);
      for (std::int64_t column = 0; column < degree(2); ++column)
        text += fmt::format(" {:<{}}", bracket(line, column), width());
      text.erase(text.find_last_not_of(' ') + 1);
      text += "\n";
    }
    return text;
  }

 private:
  static constexpr int kLabel = 16;

  std::int64_t degree(std::size_t i) const { return grid_.degree(axes_[i]); }
  /// Room for "[0 1]" and for "context 0" above it.
  std::int64_t width() const {
    const auto label = static_cast<std::int64_t>(column_label(degree(2) - 1).size());
    return std::max(inner_, label);
  }
  std::string column_label(std::int64_t column) const {
    // Many columns go without the word.
    return degree(2) > 4 ? fmt::format("{}", column)
                         : fmt::format("{} {}", axis_name(axes_[2]), column);
  }

  std::string heading() const {
    const std::string name = degree(2) > 4 ? std::string(axis_name(axes_[2])) : "";
    std::string text = fmt::format("    {:<{}}", name, kLabel);
    for (std::int64_t column = 0; column < degree(2); ++column)
      text += fmt::format("  {:<{}}", column_label(column), width() - 1);
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  }

  std::string bracket(std::int64_t line, std::int64_t column) const {
    std::string text = "[";
    for (std::int64_t i = 0; i < degree(3); ++i) {
      const std::array<std::int64_t, 4> at{stage_, line, column, i};
      const std::int64_t rank =
          axes_ == comm::kAttentionAxes ? grid_.attention_rank(at) : grid_.moe_rank(at);
      text += fmt::format("{}{:>{}}", i > 0 ? " " : "", rank, digits_);
    }
    return text + "]";
  }

  const comm::GridShape& grid_;
  const Axes& axes_;
  std::int64_t stage_;
  std::size_t digits_ = 1;
  std::int64_t inner_ = 0;
};

}  // namespace

std::string grid_picture(const comm::GridShape& grid) {
  PLEAT_ASSERT(grid.ranks() <= kMostDrawnRanks, "{} ranks are too many", grid.ranks());
  std::string text;
  for (const Axes* axes : {&comm::kAttentionAxes, &comm::kMoeAxes}) {
    text += fmt::format("\n{}: brackets hold the ranks along {}\n",
                        axes == &comm::kAttentionAxes ? "attention" : "MoE",
                        axis_name((*axes)[3]));
    for (std::int64_t stage = 0; stage < grid.degree(Axis::kPipeline); ++stage) {
      if (grid.degree(Axis::kPipeline) > 1) text += fmt::format("  stage {}\n", stage);
      text += StagePicture(grid, *axes, stage).text();
    }
  }
  return text + "\n";
}

}  // namespace pleat::cli
