// SPDX-License-Identifier: Apache-2.0
#include "grid_svg.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "grid_report.hpp"
#include "pleat/base/error.hpp"

namespace pleat::cli {
namespace {

using comm::Axis;

constexpr std::int64_t kCell = 76;  // pixels
constexpr std::int64_t kGap = 14;   // between stages, and around everything
constexpr std::int64_t kHead = 58;  // room for the titles

/// One of the two drawings.
struct Panel {
  const char* title;
  const char* colours;  ///< what a colour means
  std::array<Axis, 3> axes;
  std::array<const char*, 3> labels;
  std::vector<Axis> together;  ///< ranks that differ only along these have one colour
};

const std::array<Panel, 2>& panels() {
  static const std::array<Panel, 2> kPanels{
      {{"attention",
        "one colour: a tensor group",
        {Axis::kData, Axis::kContext, Axis::kTensor},
        {"dp", "cp", "tp"},
        {Axis::kTensor}},
       {"MoE",
        "one colour: ranks that exchange tokens",
        {Axis::kExpertData, Axis::kExpert, Axis::kExpertTensor},
        {"edp", "ep", "etp"},
        {Axis::kExpert, Axis::kExpertTensor}}}};
  return kPanels;
}

/// Where the ranks lie; the same in both panels.
class Places {
 public:
  explicit Places(const comm::GridShape& grid)
      : in_stage_(grid.ranks() / grid.degree(Axis::kPipeline)) {
    // A line is what holds one sequence, or one set of experts.
    const std::int64_t sequence =
        grid.degree(Axis::kContext) * grid.degree(Axis::kTensor);
    const std::int64_t experts =
        grid.degree(Axis::kExpert) * grid.degree(Axis::kExpertTensor);
    columns_ = sequence > 1 ? sequence : std::min<std::int64_t>(experts, 8);
    if (columns_ == 1) columns_ = std::min<std::int64_t>(in_stage_, 8);
    lines_ = (in_stage_ + columns_ - 1) / columns_;
    stages_ = grid.degree(Axis::kPipeline);
  }

  std::int64_t x(std::int64_t rank) const { return rank % in_stage_ % columns_ * kCell; }
  std::int64_t y(std::int64_t rank) const {
    return stage_y(rank / in_stage_) + rank % in_stage_ / columns_ * kCell;
  }
  std::int64_t stage_y(std::int64_t stage) const {
    return kHead + stage * (lines_ * kCell + kGap);
  }
  std::int64_t width() const { return std::max<std::int64_t>(columns_ * kCell, 260); }
  std::int64_t stage_width() const { return columns_ * kCell; }
  std::int64_t stage_height() const { return lines_ * kCell; }
  std::int64_t height() const { return stage_y(stages_); }
  std::int64_t stages() const { return stages_; }

 private:
  std::int64_t in_stage_;
  std::int64_t columns_ = 1;
  std::int64_t lines_ = 1;
  std::int64_t stages_ = 1;
};

std::string text_at(std::int64_t x, std::int64_t y, int size, const std::string& text) {
  return fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\">{}</text>\n", x, y, size,
                     text);
}

/// The number of each rank's group, counted in the order of the groups' first ranks.
std::vector<std::int64_t> group_numbers(const comm::GridShape& grid, const Panel& panel) {
  std::vector<std::int64_t> numbers;
  std::int64_t groups = 0;
  for (std::int64_t rank = 0; rank < grid.ranks(); ++rank) {
    const std::int64_t first = grid.group(rank, panel.together).front();
    numbers.push_back(first == rank ? groups++
                                    : numbers[static_cast<std::size_t>(first)]);
  }
  return numbers;
}

std::string cell(const comm::GridShape& grid, const Panel& panel, const Places& places,
                 std::int64_t rank, std::int64_t group, std::int64_t left) {
  const std::int64_t x = left + places.x(rank);
  const std::int64_t y = places.y(rank);
  // Steps of the golden angle keep the hues of neighbours apart.
  std::string text = fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"5\" "
      "fill=\"hsl({}, 65%, 82%)\" stroke=\"white\" stroke-width=\"3\"/>\n",
      x, y, kCell, kCell, group * 137 % 360);
  text += text_at(x + kCell / 2, y + 30, 20, fmt::format("{}", rank));
  std::string place;
  for (std::size_t i = 0; i < panel.axes.size(); ++i) {
    if (grid.degree(panel.axes[i]) == 1) continue;
    place += fmt::format("{}{}{}", place.empty() ? "" : " ", panel.labels[i],
                         grid.coordinate(rank, panel.axes[i]));
  }
  return text + text_at(x + kCell / 2, y + 54, 11, place);
}

std::string stage_frame(const Places& places, std::int64_t stage, std::int64_t left) {
  return fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"none\" "
      "stroke=\"#444\"/>\n",
      left - 3, places.stage_y(stage) - 3, places.stage_width() + 6,
      places.stage_height() + 6);
}

std::string draw(const comm::GridShape& grid, const Panel& panel, const Places& places,
                 std::int64_t left) {
  const std::int64_t middle = left + places.stage_width() / 2;
  std::string text =
      text_at(middle, 24, 18, panel.title) + text_at(middle, 44, 11, panel.colours);
  const std::vector<std::int64_t> groups = group_numbers(grid, panel);
  for (std::int64_t rank = 0; rank < grid.ranks(); ++rank)
    text += cell(grid, panel, places, rank, groups[static_cast<std::size_t>(rank)], left);
  for (std::int64_t stage = 0; stage < places.stages(); ++stage)
    text += stage_frame(places, stage, left);
  return text;
}

}  // namespace

std::string grid_svg(const comm::GridShape& grid) {
  PLEAT_REQUIRE(
      grid.ranks() <= kMostDrawnRanks, InputError, "PL0940",
      "a drawing of {} ranks would be too large, expected at most {}\n"
      "HINT: draw a smaller number of ranks with the same degrees, or read the text.",
      grid.ranks(), kMostDrawnRanks);
  const Places places(grid);
  const std::int64_t right = 4 * kGap + places.width();
  const std::int64_t width = right + places.width() + kGap;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" text-anchor=\"middle\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      width, places.height() + kGap);
  text +=
      draw(grid, panels()[0], places, kGap + (places.width() - places.stage_width()) / 2);
  text += draw(grid, panels()[1], places,
               right + (places.width() - places.stage_width()) / 2);
  return text + "</svg>\n";
}

}  // namespace pleat::cli
