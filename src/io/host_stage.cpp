// SPDX-License-Identifier: Apache-2.0
#include "host_stage.hpp"

#include <atomic>
#include <chrono>
#include <new>
#include <thread>

#include "agreement.hpp"
#include "pleat/comm/check_mpi.hpp"

namespace pleat::io {

namespace {

constexpr std::int64_t kPage = 4096;

std::int64_t whole_pages(std::int64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

/// At the beginning of the memory; the words of the ranks, for two turns, follow.
struct HostStage::Shared {
  std::atomic<std::uint32_t> waiting = 0;
  std::atomic<std::uint32_t> passed = 0;
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
};

HostStage::HostStage(MPI_Comm comm, std::int64_t bytes)
    : ranks_(ranks_of(comm)), bytes_(bytes) {
  PLEAT_CHECK_MPI(MPI_Comm_rank(comm, &rank_));
  const std::int64_t head =
      whole_pages(static_cast<std::int64_t>(sizeof(Shared)) +
                  2 * ranks_ * static_cast<std::int64_t>(sizeof(Word)));
  const std::int64_t mine_bytes = rank_ == 0 ? head + bytes : 0;
  void* mine = nullptr;
  PLEAT_CHECK_MPI(
      MPI_Win_allocate_shared(mine_bytes, 1, MPI_INFO_NULL, comm, &mine, &window_));
  MPI_Aint size = 0;
  int unit = 0;
  void* all = nullptr;
  PLEAT_CHECK_MPI(MPI_Win_shared_query(window_, 0, &size, &unit, &all));
  shared_ = static_cast<Shared*>(all);
  memory_ = static_cast<std::byte*>(all) + head;
  if (rank_ == 0) new (shared_) Shared;
  PLEAT_CHECK_MPI(MPI_Barrier(comm));
}

HostStage::~HostStage() { MPI_Win_free(&window_); }

HostStage::Word& HostStage::word(int rank) const {
  return reinterpret_cast<Word*>(shared_ + 1)[(turn_ % 2) * ranks_ + rank];
}

// The last one lets the others pass. They do not spin for long: there may be more ranks,
// and threads of each, than cores.
void HostStage::synchronize() {
  constexpr int kSpins = 100;
  constexpr std::chrono::microseconds kNap{20};
  const std::uint32_t passed = shared_->passed.load(std::memory_order_acquire);
  if (shared_->waiting.fetch_add(1, std::memory_order_acq_rel) + 1 ==
      static_cast<std::uint32_t>(ranks_)) {
    shared_->waiting.store(0, std::memory_order_relaxed);
    shared_->passed.store(passed + 1, std::memory_order_release);
    return;
  }
  for (int i = 0; shared_->passed.load(std::memory_order_acquire) == passed; ++i) {
    i < kSpins ? std::this_thread::yield() : std::this_thread::sleep_for(kNap);
  }
}

// Words of two turns: a rank that is ahead writes into those that no one reads any more.
std::vector<HostStage::Word> HostStage::exchange(const Word& mine) {
  word(rank_) = mine;
  synchronize();
  std::vector<Word> all;
  for (int rank = 0; rank < ranks_; ++rank) all.push_back(word(rank));
  ++turn_;
  return all;
}

}  // namespace pleat::io
