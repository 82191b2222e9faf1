// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief MPI and Kokkos for the lifetime of the program.

#include <mpi.h>

namespace pleat {

/// \brief Starts MPI, then Kokkos; ends them in the opposite order. One per process, made in
/// main. Works without a launcher as a single rank.
class Runtime {
 public:
  Runtime(int& argc, char**& argv);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// \brief The communicator of all ranks; the only way to it.
  MPI_Comm world() const;
  /// \brief Ends the whole job at once, on every rank.
  [[noreturn]] void abort(int exit_code) const;

 private:
  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace pleat
