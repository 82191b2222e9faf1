// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Memory that the ranks of one machine share, and how they keep step in using it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <mpi.h>

namespace pleat::io {

/// \brief Between construction and destruction, which are collective, it calls no MPI:
/// the ranks may use it on threads of their own, one of each rank.
class HostStage {
 public:
  /// \brief Collective over a communicator whose ranks are all on one machine.
  HostStage(MPI_Comm comm, std::int64_t bytes);
  /// \brief Collective.
  ~HostStage();
  HostStage(const HostStage&) = delete;
  HostStage& operator=(const HostStage&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::byte* memory() const { return memory_; }
  std::int64_t bytes() const { return bytes_; }
  /// \brief Waits for all ranks. What any of them put into the memory before, all see
  /// afterwards.
  void synchronize();

  using Word = std::array<std::int64_t, 2>;
  /// \brief What each rank gives, by rank. All ranks have to call it.
  std::vector<Word> exchange(const Word& mine);

 private:
  struct Shared;
  Word& word(int rank) const;

  int rank_ = 0;
  int ranks_ = 1;
  std::int64_t bytes_;
  MPI_Win window_ = MPI_WIN_NULL;
  Shared* shared_ = nullptr;
  std::byte* memory_ = nullptr;
  std::uint32_t turn_ = 0;  ///< of exchange()
};

}  // namespace pleat::io
