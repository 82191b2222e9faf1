// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief MPI and Kokkos for the lifetime of the program.

#include <functional>

#include <mpi.h>

namespace pleat {

/// \brief Starts MPI, then Kokkos where it is wanted; ends them in the opposite order. One per
/// process, made in main. Works without a launcher as a single rank.
///
/// From then on, an exception that nobody catches, on any thread, ends the whole job: one
/// message on stderr, "pleat: rank 3 of 8: PL0602: ...", and the exit code of the error.
/// Where all ranks fail alike only one of them speaks.
class Runtime {
 public:
  Runtime(int& argc, char**& argv);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// \brief Once, before the first view or kernel. \throws InputError PL0105 in a build for
  /// GPUs where there is none
  void start_kokkos();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// \brief The communicator of all ranks; the only way to it.
  MPI_Comm world() const;

  /// \brief Does the work of the program. On a single rank an exception unwinds it, so that
  /// nothing is left half-written, and becomes a message. On several it ends the job at
  /// once, before any destructor could wait for the other ranks.
  /// \returns the exit code
  int run(const std::function<int()>& work) const;

 private:
  int rank_ = 0;
  int ranks_ = 1;
  bool has_kokkos_ = false;
};

}  // namespace pleat
