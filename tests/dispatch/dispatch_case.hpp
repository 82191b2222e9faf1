// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Tokens of every rank, known to all, and what a dispatcher of one rank makes of
/// them.
///
/// Legend: T tokens of a rank, K experts per token, E experts, D hidden, P ranks of
/// ep*etp, G = P T tokens of all of them, N rows at all experts.

#include <string>
#include <vector>

#include "kernels/reference.hpp"
#include "pleat/comm/grid.hpp"
#include "pleat/model/dispatcher.hpp"

namespace pleat::test {

using Integers = std::vector<std::int64_t>;

struct DispatchShape {
  Index tokens = 13;
  Index choices = 3;
  Index experts = 8;
  Index hidden = 5;
};

/// \brief Which (token, choice) pairs go nowhere.
enum class Routing {
  kFull,         ///< none
  kHoles,        ///< every fifth token, and some pairs of others
  kEmptyRank,    ///< all of each group's first rank
  kEmptyExpert,  ///< those of expert 1
  kEmptyGroup,   ///< all of the first ep*etp group
  kOneExpert,    ///< all but those of the last expert
  kNothing,      ///< all, on every rank
  kBalanced      ///< none, and each rank has as many rows for each expert
};
/// \brief All of them on up to four ranks, some on more.
std::vector<Routing> routings();

/// \brief Degrees of the expert axes.
struct ExpertDegrees {
  Index expert = 1;
  Index expert_tensor = 1;
};

/// \brief All that the ranks of the test can be cut into.
std::vector<ExpertDegrees> all_degrees();

std::unique_ptr<comm::Grid> make_grid(const ExpertDegrees& degrees);

/// \brief What one rank holds.
struct RankTokens {
  Integers index;  // [T, K]
  Values x;        // [T, D]
  Values weight;   // [T, K]
};

/// \brief A layer's exchange in one ep*etp group, as one rank computes it for all.
class DispatchCase {
 public:
  DispatchCase(const comm::Grid& grid, const DispatchShape& shape, Routing routing);

  const DispatchShape& shape() const { return shape_; }
  Index ranks() const { return ranks_; }
  /// \brief This rank's tokens.
  const RankTokens& own() const { return sources_[static_cast<std::size_t>(self_)]; }
  const std::vector<RankTokens>& sources() const { return sources_; }
  Index rank_in_group() const { return self_; }

  /// \brief [L + 1] offsets of this rank's experts, from 0.
  Integers offsets() const;
  /// \brief The part of [N, columns] that belongs to this rank's experts.
  Values at_own_experts(const Values& values_N, Index columns) const;
  /// \brief The part of [G, columns] that belongs to this rank's tokens.
  Values of_own_tokens(const Values& values_G, Index columns) const;

  Values dispatched() const;                       ///< [N, D]
  Values dispatched_weights() const;               ///< [N]
  Values combined(const Values& y_ND) const;       ///< [G, D]
  Values returned(const Values& dweight_N) const;  ///< [G, K]

  Index rows() const { return record_.rows; }  ///< N
  /// \brief The rows of an expert from a source.
  Index rows(Index source, Index expert) const;
  /// \brief Values that the shard holds for all rows: the same on every rank of that
  /// shard.
  Values shard_values(Index shard, Index columns) const;
  /// \brief The sum of shard_values over the shards.
  Values summed_values(Index columns) const;

 private:
  DispatchShape shape_;
  Index ranks_, shards_, self_;
  Index first_, last_;  // this rank's experts
  std::vector<RankTokens> sources_;
  std::unique_ptr<const model::Dispatcher<double>> local_;
  Arena arena_{"reference"};
  Arena scratch_{"reference scratch"};
  model::DispatchRecord record_;
};

std::string describe(const comm::Grid& grid, Routing routing, plan::DispatcherKind kind);

}  // namespace pleat::test
