// SPDX-License-Identifier: Apache-2.0
#include "host_stage.hpp"

#include "pleat/comm/check_mpi.hpp"

namespace pleat::io {

HostStage::HostStage(MPI_Comm comm, std::int64_t bytes) : comm_(comm) {
  int rank = 0;
  PLEAT_CHECK_MPI(MPI_Comm_rank(comm, &rank));
  void* mine = nullptr;
  PLEAT_CHECK_MPI(MPI_Win_allocate_shared(rank == 0 ? static_cast<MPI_Aint>(bytes) : 0, 1,
                                          MPI_INFO_NULL, comm, &mine, &window_));
  MPI_Aint size = 0;
  int unit = 0;
  void* all = nullptr;
  PLEAT_CHECK_MPI(MPI_Win_shared_query(window_, 0, &size, &unit, &all));
  memory_ = static_cast<std::byte*>(all);
  PLEAT_CHECK_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_));
}

HostStage::~HostStage() {
  MPI_Win_unlock_all(window_);
  MPI_Win_free(&window_);
}

void HostStage::synchronize() const {
  PLEAT_CHECK_MPI(MPI_Win_sync(window_));
  PLEAT_CHECK_MPI(MPI_Barrier(comm_));
  PLEAT_CHECK_MPI(MPI_Win_sync(window_));
}

}  // namespace pleat::io
