// SPDX-License-Identifier: Apache-2.0
#include "pleat/comm/grid_shape.hpp"

#include <algorithm>
#include <string>

#include "pleat/base/error.hpp"

namespace pleat::comm {
namespace {

/// Of a degree and of the rank count; the product of three does not overflow.
constexpr std::int64_t kLargest = std::int64_t{1} << 20;

/// A degree of one grid that the deck sets.
struct Factor {
  Axis axis;
  std::int64_t degree;
};

/// The divisor of n that is nearest to the value; the smaller of two.
std::int64_t nearest_divisor(std::int64_t n, std::int64_t value) {
  std::int64_t nearest = 1;
  for (std::int64_t d = 1; d <= n; ++d) {
    if (n % d == 0 && std::abs(d - value) < std::abs(nearest - value)) nearest = d;
  }
  return nearest;
}

/// Rank counts around `ranks`, and other values of single degrees, that fill the grid.
std::string legal_choices(const std::array<Factor, 3>& factors, std::int64_t product,
                          std::int64_t ranks) {
  const std::int64_t above = (ranks / product + 1) * product;
  std::string text = fmt::format("--ranks {}", above);
  if (above > product) text = fmt::format("--ranks {} or {}", above - product, above);
  for (const Factor& factor : factors) {
    const std::int64_t others = product / factor.degree;
    if (factor.degree == 1 || ranks % others != 0) continue;
    text += fmt::format(", or parallel.{} = {}", axis_name(factor.axis),
                        nearest_divisor(ranks / others, factor.degree));
  }
  return text;
}

/// The degree that is left for the replicas of the grid.
std::int64_t fill(const char* layers, const std::array<Factor, 3>& factors,
                  std::int64_t ranks) {
  std::int64_t product = 1;
  for (const Factor& factor : factors) {
    PLEAT_REQUIRE(factor.degree >= 1 && factor.degree <= kLargest, InputError, "PL0801",
                  "parallel.{} = {}: expected 1 to {}", axis_name(factor.axis),
                  factor.degree, kLargest);
    product *= factor.degree;
  }
  PLEAT_REQUIRE(
      ranks % product == 0, InputError, "PL0802",
      "the grid of the {} layers does not fill {} ranks: {} = {}, {} = {} and {} = {} "
      "need a multiple of {}\nHINT: the nearest legal choices are {}.",
      layers, ranks, axis_name(factors[0].axis), factors[0].degree,
      axis_name(factors[1].axis), factors[1].degree, axis_name(factors[2].axis),
      factors[2].degree, product, legal_choices(factors, product, ranks));
  return ranks / product;
}

bool belongs_to(Axis axis, const std::array<Axis, 4>& grid) {
  return std::find(grid.begin(), grid.end(), axis) != grid.end();
}

const std::array<Axis, 4>& grid_of(Axis axis) {
  return belongs_to(axis, kAttentionAxes) ? kAttentionAxes : kMoeAxes;
}

}  // namespace

GridShape::GridShape(const Degrees& d, std::int64_t ranks) : ranks_(ranks), degree_{} {
  PLEAT_REQUIRE(ranks >= 1 && ranks <= kLargest, InputError, "PL0801",
                "{} ranks: expected 1 to {}", ranks, kLargest);
  const std::int64_t data = fill("attention",
                                 {{{Axis::kPipeline, d.pipeline},
                                   {Axis::kContext, d.context},
                                   {Axis::kTensor, d.tensor}}},
                                 ranks);
  const std::int64_t expert_data = fill("MoE",
                                        {{{Axis::kPipeline, d.pipeline},
                                          {Axis::kExpert, d.expert},
                                          {Axis::kExpertTensor, d.expert_tensor}}},
                                        ranks);
  degree_ = {d.pipeline,  data,     d.context,      d.tensor,
             expert_data, d.expert, d.expert_tensor};
}

std::int64_t GridShape::stride(Axis axis) const {
  std::int64_t stride = 1;
  const std::array<Axis, 4>& grid = grid_of(axis);
  for (auto faster = grid.rbegin(); *faster != axis; ++faster) stride *= degree(*faster);
  return stride;
}

std::int64_t GridShape::coordinate(std::int64_t rank, Axis axis) const {
  PLEAT_ASSERT(rank >= 0 && rank < ranks_, "rank {} of {}", rank, ranks_);
  return rank / stride(axis) % degree(axis);
}

std::int64_t GridShape::attention_rank(
    const std::array<std::int64_t, 4>& coordinates) const {
  return rank_in(kAttentionAxes, coordinates);
}

std::int64_t GridShape::moe_rank(const std::array<std::int64_t, 4>& coordinates) const {
  return rank_in(kMoeAxes, coordinates);
}

std::int64_t GridShape::rank_in(const std::array<Axis, 4>& grid,
                                const std::array<std::int64_t, 4>& coordinates) const {
  std::int64_t rank = 0;
  for (std::size_t i = 0; i < grid.size(); ++i) {
    PLEAT_ASSERT(coordinates[i] >= 0 && coordinates[i] < degree(grid[i]),
                 "{} coordinate {} of {}", axis_name(grid[i]), coordinates[i],
                 degree(grid[i]));
    rank = rank * degree(grid[i]) + coordinates[i];
  }
  return rank;
}

std::vector<std::int64_t> GridShape::group(std::int64_t rank,
                                           const std::vector<Axis>& axes) const {
  const bool one_grid =
      std::all_of(axes.begin(), axes.end(),
                  [](Axis a) { return belongs_to(a, kAttentionAxes); }) ||
      std::all_of(axes.begin(), axes.end(),
                  [](Axis a) { return belongs_to(a, kMoeAxes); });
  PLEAT_ASSERT(one_grid, "a group lies in one grid");
  std::vector<std::int64_t> ranks{rank};
  for (const Axis axis : axes) {
    const std::vector<std::int64_t> before = std::move(ranks);
    ranks.clear();
    for (const std::int64_t member : before) {
      const std::int64_t first = member - coordinate(member, axis) * stride(axis);
      for (std::int64_t i = 0; i < degree(axis); ++i)
        ranks.push_back(first + i * stride(axis));
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace pleat::comm
