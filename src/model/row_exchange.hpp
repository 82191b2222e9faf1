// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Rows there and back: all-to-all over the expert axis, gather over the shards of
/// an expert, sort. docs/dispatcher.md draws the steps.
///
/// Legend: P ranks of ep*etp (in the order of their ranks: the shards of one expert rank
/// are neighbours), E experts, L experts of this rank, S rows that this rank sends, M
/// rows that it receives, R rows at its experts, D elements of a row.

#include <functional>
#include <span>
#include <vector>

#include "rank_dispatchers.hpp"

namespace pleat::model {

class RowExchange {
 public:
  RowExchange(std::int64_t experts, const comm::Grid& grid);

  std::int64_t ranks() const { return expert_ranks_ * shards_; }
  std::int64_t local_experts() const { return local_; }
  std::int64_t segments() const { return ranks() * local_; }
  /// \brief Rows arrive in the order in which the experts want them: one rank, or one
  /// local expert whose sources follow each other.
  bool arrives_sorted() const {
    return ranks() == 1 || (local_ == 1 && (shards_ == 1 || expert_ranks_ == 1));
  }

  /// \brief Where the rows of a layer go: sizes and host lists of the record, in memory that
  /// it keeps from one micro-batch to the next.
  /// \param counts_PE  rows of each source rank for each expert
  void find_routes(std::span<const std::int64_t> counts_PE, DispatchRecord& record) const;

  /// \brief x_RD from the rows of all sources. `fill` writes this rank's, ordered by
  /// expert.
  template <class U>
  void to_experts(const ExecSpace& exec, const DispatchRecord& record,
                  const std::function<void(const DeviceView<U, 2>&)>& fill,
                  Arena& scratch, const DeviceView<U, 2>& x_RD,
                  const Meanwhile& meanwhile) const;

  /// \brief The adjoint: `use` reads the rows that have come back to this rank, ordered
  /// by expert and summed over the shards.
  template <class U>
  void from_experts(const ExecSpace& exec, const DispatchRecord& record,
                    const DeviceView<const U, 2>& y_RD, Arena& scratch,
                    const std::function<void(const DeviceView<const U, 2>&)>& use,
                    const Meanwhile& meanwhile) const;

 private:
  comm::Communicator& expert_group_;
  comm::Communicator& shard_group_;
  std::int64_t expert_ranks_;  // ep
  std::int64_t shards_;        // etp
  std::int64_t expert_rank_;   // this rank's coordinates
  std::int64_t shard_;
  std::int64_t experts_;
  std::int64_t local_;  // L
  mutable std::vector<std::int64_t> to_PL_;  // of find_routes()
};

}  // namespace pleat::model
