// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Moves the pieces of all ranks between memory and file, a bounded round at a time.

#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include <mpi.h>

#include "file_runs.hpp"
#include "host_stage.hpp"
#include "mpi_file.hpp"
#include "plain_file.hpp"

namespace pleat::io {

/// \brief The pieces of one rank, those of long runs apart from those of short ones.
///
/// A long run is best written by the rank that has it. Short ones, as of a matrix that is cut
/// by columns, are gathered from all ranks, so that the file sees long runs again. In reading,
/// the ranks of one machine gather all runs: the system reads ahead for one stream, while
/// several that take turns in a file slow each other down.
class PieceQueue {
 public:
  /// \brief Collective. Automatically, a single rank gathers nothing.
  PieceQueue(CollectiveBuffering mode, PlainFile::Access access, MPI_Comm comm);

  void add(Piece piece);
  /// \brief Elements of pieces of long runs, about so many bytes of them; empty at the end.
  Round take_long(std::int64_t bytes);
  /// \brief The same of all pieces.
  Round take_any(std::int64_t bytes);
  /// \brief All elements of pieces of short runs that lie before a place in the file.
  Round take_short(std::int64_t end);
  /// \brief The first place in the file that such a piece still has; kNoEnd at the end.
  std::int64_t next_short() const;
  /// \brief What has not been taken, to be moved to other memory.
  std::vector<Piece*> rest();
  void clear();

 private:
  std::int64_t shortest_;  ///< bytes of a run that counts as long
  std::vector<Piece> long_;
  std::vector<Piece> short_;
};

/// \brief A rank's part in moving everything that all ranks have; the calls for elements of
/// long runs come first.
class RoundMover {
 public:
  virtual ~RoundMover() = default;
  virtual Round take_long() = 0;
  virtual Round take_short(std::int64_t end) = 0;
  virtual std::int64_t next_short() const = 0;
  /// \brief Called for one round after the other when it has been moved. In reading, the next
  /// one may have been taken by then; in writing it has not.
  virtual void moved(Round& round) = 0;
};

/// \brief Begins what is to be computed of a round on another thread, so that the disk need not
/// wait for it; of a small one, get() does it. Dropping the future waits.
std::future<void> begin_beside(Round round, std::function<void(Round&)> work);

/// \brief Where short runs of the ranks are gathered: in memory that they share where one
/// machine has all of several ranks and room for it, and the deck leaves it open, else by
/// MPI-IO. Nothing where MPI-IO does it or no rank has short runs. Collective.
std::unique_ptr<HostStage> make_stage(MPI_Comm comm, const CheckpointHints& hints,
                                      const RoundMover& mover);

/// \brief Moves the short runs of all ranks of the stage; no MPI. All of them have to
/// call it. \param plain  nothing only where `earlier` says why \param earlier  what has
/// failed on this rank already: then all end at once \return what failed on this rank, or
/// nothing
std::exception_ptr move_staged(HostStage& stage, const std::optional<PlainFile>& plain,
                               RoundMover& mover,
                               const std::exception_ptr& earlier = nullptr);

/// \brief Moves everything, round by round. Collective; fails alike on all ranks.
/// \param plain  the same file
void move_rounds(MpiFile& file, const std::optional<PlainFile>& plain, MPI_Comm comm,
                 const CheckpointHints& hints, RoundMover& mover);

}  // namespace pleat::io
