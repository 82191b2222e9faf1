// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Both process grids of a running job and the groups that exchange data.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <mpi.h>

#include "pleat/comm/communicator.hpp"
#include "pleat/comm/grid_shape.hpp"

namespace pleat::comm {

/// \brief The groups along which data moves; each is an axis of one grid or a product of
/// axes.
enum class GroupName : std::size_t {
  kWorld,
  kPipeline,           ///< stages of one data shard
  kData,               ///< dp
  kContext,            ///< cp: keys and values
  kTensor,             ///< tp: heads, vocabulary, sub-sequences
  kDataContext,        ///< dp*cp: dense gradients
  kContextTensor,      ///< cp*tp: router statistics of a micro-batch
  kDataContextTensor,  ///< dp*cp*tp: router statistics of the global batch
  kExpertData,         ///< edp: expert gradients
  kExpert,             ///< ep: tokens to experts
  kExpertTensor,       ///< etp: tokens to the shards of an expert
  kDispatch,           ///< ep*etp
  kCount
};

inline constexpr std::size_t kGroups = static_cast<std::size_t>(GroupName::kCount);

/// \brief "data*context".
const char* group_name(GroupName group);

/// \brief Whether exchanges run beside the work that follows their start.
enum class Overlap { kYes, kNo };

/// \brief Owns the communicators of a rank. Two Cartesian communicators (MPI_Cart_create
/// without reordering, so that both number the ranks alike) are cut into groups by
/// MPI_Cart_sub. Passed explicitly; there is no global grid.
class Grid {
 public:
  /// \brief Collective over `world`. \throws InputError PL0802 when the shape is of
  /// another rank count than `world`; as choose_backend()
  Grid(MPI_Comm world, const GridShape& shape, BackendKind backend = BackendKind::kMpi,
       Overlap overlap = Overlap::kYes);
  /// \brief One rank by itself, without MPI.
  Grid();

  const GridShape& shape() const { return shape_; }
  /// \brief What moves data between devices; kAuto is resolved.
  BackendKind backend() const { return backend_; }
  std::int64_t rank() const { return rank_; }
  std::int64_t degree(Axis axis) const { return shape_.degree(axis); }
  std::int64_t coordinate(Axis axis) const { return shape_.coordinate(rank_, axis); }
  /// \brief "rank 5 (pipeline 0, data 1, context 0, tensor 1; expert_data 0, ...)".
  std::string describe_rank() const;

  Communicator& group(GroupName name) const {
    return *groups_[static_cast<std::size_t>(name)];
  }
  /// \brief What this rank has sent through each group, by label, in the order of
  /// GroupName; then through those that were split off them, alike labels together.
  std::vector<std::pair<std::string, Traffic>> traffic() const;
  /// \brief How long the host of this rank has waited for the exchanges of each group so
  /// far, by label, in the order of GroupName.
  std::vector<std::pair<std::string, double>> waited() const;
  /// \brief The same of all groups together.
  double waited_seconds() const;
  /// \brief The exchange that this rank is blocked in, "all_reduce of data*context"; empty
  /// while there is none. Any thread may ask.
  std::string exchange_under_way() const;
  /// \brief The world communicator for files (parallel HDF5); MPI_COMM_SELF without MPI.
  MPI_Comm files() const { return files_; }

 private:
  GridShape shape_;
  std::int64_t rank_ = 0;
  BackendKind backend_ = BackendKind::kMpi;
  MPI_Comm files_ = MPI_COMM_SELF;
  std::array<std::unique_ptr<Communicator>, kGroups> groups_;
};

}  // namespace pleat::comm
