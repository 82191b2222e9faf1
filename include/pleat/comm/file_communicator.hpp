// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A communicator of its own for files that a thread writes beside the steps.

#include <mpi.h>

#include "pleat/comm/check_mpi.hpp"

namespace pleat::comm {

/// \brief Duplicates a communicator, so that its exchanges cannot meet those of another thread.
/// Construction and destruction are collective.
class FileCommunicator {
 public:
  explicit FileCommunicator(MPI_Comm parent) { PLEAT_CHECK_MPI(MPI_Comm_dup(parent, &handle_)); }
  ~FileCommunicator() { MPI_Comm_free(&handle_); }
  FileCommunicator(const FileCommunicator&) = delete;
  FileCommunicator& operator=(const FileCommunicator&) = delete;
  MPI_Comm get() const { return handle_; }

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
};

}  // namespace pleat::comm
