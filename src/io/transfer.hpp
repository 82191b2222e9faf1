// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Moves the pieces of all ranks between memory and file, a bounded round at a time.

#include <cstdint>
#include <functional>
#include <future>
#include <vector>

#include <mpi.h>

#include "file_runs.hpp"
#include "mpi_file.hpp"

namespace pleat::io {

/// \brief The pieces of one rank, those of long runs apart from those of short ones.
///
/// A long run is best written by the rank that has it. Short ones, as of a matrix that is cut
/// by columns, are gathered from all ranks, so that the file sees long runs again.
class PieceQueue {
 public:
  /// \param ranks  of the communicator; automatically, a single rank gathers nothing
  PieceQueue(CollectiveBuffering mode, int ranks);

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
  virtual std::int64_t next_short() = 0;
  /// \brief Called when the round that was taken last has been moved.
  virtual void moved(Round& round) = 0;
};

/// \brief Begins what is to be computed of a round on another thread, so that the disk need not
/// wait for it; of a small one, get() does it. Dropping the future waits.
std::future<void> begin_beside(Round round, std::function<void(Round&)> work);

/// \brief Moves everything, round by round. Collective; fails alike on all ranks.
void move_rounds(MpiFile& file, MPI_Comm comm, RoundMover& mover);

}  // namespace pleat::io
