// SPDX-License-Identifier: Apache-2.0
#include "pleat/comm/grid_shape.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include <fmt/ranges.h>

#include "pleat/base/error.hpp"

namespace pleat::comm {
namespace {

/// Of a degree and of the rank count; the product of three does not overflow.
constexpr std::int64_t kLargest = std::int64_t{1} << 20;

using Fits = std::function<bool(const Degrees&)>;

/// A degree of one grid that the deck sets.
struct Factor {
  Axis axis;
  std::int64_t Degrees::*field;
};

/// The degrees of one grid.
struct Factors {
  const char* layers;
  std::array<Factor, 3> factors;

  std::int64_t product(const Degrees& degrees) const {
    std::int64_t product = 1;
    for (const Factor& factor : factors) product *= degrees.*factor.field;
    return product;
  }
};

constexpr Factors kAttentionFactors{"attention",
                                    {{{Axis::kPipeline, &Degrees::pipeline},
                                      {Axis::kContext, &Degrees::context},
                                      {Axis::kTensor, &Degrees::tensor}}}};
constexpr Factors kMoeFactors{"MoE",
                              {{{Axis::kPipeline, &Degrees::pipeline},
                                {Axis::kExpert, &Degrees::expert},
                                {Axis::kExpertTensor, &Degrees::expert_tensor}}}};

/// The degree nearest to the given one with which both grids fill the ranks and that fits
/// the model, the smaller of two; 0: none.
std::int64_t nearest_degree(const Degrees& degrees, const Factor& factor,
                            std::int64_t ranks, const Fits& fits) {
  std::int64_t nearest = 0;
  const std::int64_t value = degrees.*factor.field;
  for (std::int64_t d = 1; d <= ranks; ++d) {
    Degrees other = degrees;
    other.*factor.field = d;
    if (ranks % kAttentionFactors.product(other) != 0) continue;
    if (ranks % kMoeFactors.product(other) != 0) continue;
    if (nearest > 0 && std::abs(d - value) >= std::abs(nearest - value)) continue;
    if (!fits || fits(other)) nearest = d;
  }
  return nearest;
}

/// The smallest number of ranks that both grids fill; 0 where it is not allowed.
std::int64_t filled_ranks(const Degrees& degrees) {
  const std::int64_t attention = kAttentionFactors.product(degrees);
  const std::int64_t moe = kMoeFactors.product(degrees);
  if (attention > kLargest || moe > kLargest) return 0;
  const std::int64_t both = std::lcm(attention, moe);
  return both > kLargest ? 0 : both;
}

/// Rank counts around `ranks`, and other values of single degrees, that fill both grids.
std::string legal_choices(const Degrees& degrees, const Factors& grid, std::int64_t ranks,
                          const Fits& fits) {
  std::vector<std::string> choices;
  if (const std::int64_t both = filled_ranks(degrees); both > 0) {
    const std::int64_t below = ranks / both * both;
    if (below > 0) choices.push_back(fmt::format("{} ranks", below));
    if (below + both <= kLargest)
      choices.push_back(fmt::format("{} ranks", below + both));
  }
  for (const Factor& factor : grid.factors) {
    if (degrees.*factor.field == 1) continue;
    const std::int64_t nearest = nearest_degree(degrees, factor, ranks, fits);
    if (nearest == 0) continue;
    choices.push_back(fmt::format("parallel.{} = {}", axis_name(factor.axis), nearest));
  }
  if (choices.empty())
    return "HINT: no number of ranks fills both grids; lower the degrees.";
  return fmt::format("HINT: the nearest legal {} {}.",
                     choices.size() == 1 ? "choice is" : "choices are",
                     fmt::join(choices, ", or "));
}

void check_degrees(const Degrees& degrees, const Factors& grid) {
  for (const Factor& factor : grid.factors) {
    PLEAT_REQUIRE(degrees.*factor.field >= 1 && degrees.*factor.field <= kLargest,
                  InputError, "PL0801", "parallel.{} = {}: expected 1 to {}",
                  axis_name(factor.axis), degrees.*factor.field, kLargest);
  }
}

/// The degree that is left for the replicas of the grid.
std::int64_t fill(const Degrees& degrees, const Factors& grid, std::int64_t ranks,
                  const Fits& fits) {
  const std::int64_t product = grid.product(degrees);
  const auto& f = grid.factors;
  PLEAT_REQUIRE(
      ranks % product == 0, InputError, "PL0802",
      "the grid of the {} layers does not fill {} ranks: {} = {}, {} = {} and {} = {} "
      "need a multiple of {}\n{}",
      grid.layers, ranks, axis_name(f[0].axis), degrees.*f[0].field, axis_name(f[1].axis),
      degrees.*f[1].field, axis_name(f[2].axis), degrees.*f[2].field, product,
      legal_choices(degrees, grid, ranks, fits));
  return ranks / product;
}

bool belongs_to(Axis axis, const std::array<Axis, 4>& grid) {
  return std::find(grid.begin(), grid.end(), axis) != grid.end();
}

const std::array<Axis, 4>& grid_of(Axis axis) {
  return belongs_to(axis, kAttentionAxes) ? kAttentionAxes : kMoeAxes;
}

}  // namespace

std::int64_t fewest_ranks(const Degrees& degrees) {
  check_degrees(degrees, kAttentionFactors);
  check_degrees(degrees, kMoeFactors);
  return std::lcm(std::min(kAttentionFactors.product(degrees), kLargest),
                  std::min(kMoeFactors.product(degrees), kLargest));
}

void require_degrees(const Degrees& degrees, std::int64_t ranks) {
  PLEAT_REQUIRE(ranks >= 1 && ranks <= kLargest, InputError, "PL0801",
                "{} ranks: expected 1 to {}", ranks, kLargest);
  check_degrees(degrees, kAttentionFactors);
  check_degrees(degrees, kMoeFactors);
}

GridShape::GridShape(const Degrees& d, std::int64_t ranks, const Fits& fits)
    : ranks_(ranks), degree_{} {
  require_degrees(d, ranks);
  const std::int64_t data = fill(d, kAttentionFactors, ranks, fits);
  const std::int64_t expert_data = fill(d, kMoeFactors, ranks, fits);
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
