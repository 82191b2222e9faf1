// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Rank arithmetic of the two process grids, without any communicator.
///
/// Both grids number the same W ranks, slowest axis first:
///
///     rank = ((pp DP + dp) CP + cp) TP + tp            attention layers
///     rank = ((pp EDP + edp) EP + ep) ETP + etp        MoE layers
///
/// The pipeline stage is the slowest axis of both, so a rank's stage is the same in
/// either; that is all which couples them.

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "pleat/comm/axis.hpp"

namespace pleat::comm {

/// \brief The degrees that a deck sets ([parallel]); data and expert data follow.
struct Degrees {
  std::int64_t pipeline = 1;
  std::int64_t context = 1;
  std::int64_t tensor = 1;
  std::int64_t expert = 1;
  std::int64_t expert_tensor = 1;
};

/// \brief The smallest number of ranks that both grids fill, where a grid of them is allowed.
/// \throws InputError PL0801 (degree out of range)
std::int64_t fewest_ranks(const Degrees& degrees);

/// \brief Checks each number by itself. \throws InputError PL0801
void require_degrees(const Degrees& degrees, std::int64_t ranks);

class GridShape {
 public:
  /// \brief Both grids over `ranks` ranks.
  /// \throws InputError PL0801 (degree or rank count out of range), PL0802 (a grid does
  /// not fill the ranks; names the nearest legal choices)
  /// \param fits  whether the model allows other degrees, for the choices that are named
  GridShape(const Degrees& degrees, std::int64_t ranks,
            const std::function<bool(const Degrees&)>& fits = {});

  std::int64_t ranks() const { return ranks_; }
  std::int64_t degree(Axis axis) const { return degree_[static_cast<std::size_t>(axis)]; }
  std::int64_t coordinate(std::int64_t rank, Axis axis) const;

  /// \brief The rank at the coordinates, given in the order of kAttentionAxes.
  std::int64_t attention_rank(const std::array<std::int64_t, 4>& coordinates) const;
  /// \brief The rank at the coordinates, given in the order of kMoeAxes.
  std::int64_t moe_rank(const std::array<std::int64_t, 4>& coordinates) const;

  /// \brief The ranks, in rising order, that differ from `rank` at most along the given
  /// axes, all of one grid: `group(r, {kData, kContext})` sums r's dense gradients.
  std::vector<std::int64_t> group(std::int64_t rank, const std::vector<Axis>& axes) const;

 private:
  std::int64_t stride(Axis axis) const;
  std::int64_t rank_in(const std::array<Axis, 4>& grid,
                       const std::array<std::int64_t, 4>& coordinates) const;

  std::int64_t ranks_;
  std::array<std::int64_t, kAxes> degree_;
};

}  // namespace pleat::comm
