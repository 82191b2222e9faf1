// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Memory that the ranks of one machine share.

#include <cstddef>
#include <cstdint>

#include <mpi.h>

namespace pleat::io {

class HostStage {
 public:
  /// \brief Collective over a communicator whose ranks are all on one machine.
  HostStage(MPI_Comm comm, std::int64_t bytes);
  /// \brief Collective.
  ~HostStage();
  HostStage(const HostStage&) = delete;
  HostStage& operator=(const HostStage&) = delete;

  std::byte* memory() const { return memory_; }
  /// \brief What any rank put there before, all ranks see afterwards. Collective.
  void synchronize() const;

 private:
  MPI_Comm comm_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::byte* memory_ = nullptr;
};

}  // namespace pleat::io
