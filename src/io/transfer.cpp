// SPDX-License-Identifier: Apache-2.0
#include "transfer.hpp"

#include <algorithm>
#include <exception>

#include "agreement.hpp"
#include "pleat/comm/check_mpi.hpp"

namespace pleat::io {

namespace {

constexpr std::int64_t kLongRun = 256 << 10;  // bytes; from there on gathering costs more

std::int64_t agreed_sum(MPI_Comm comm, std::int64_t value) {
  PLEAT_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_SUM, comm));
  return value;
}

std::int64_t agreed_least(MPI_Comm comm, std::int64_t value) {
  PLEAT_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MIN, comm));
  return value;
}

/// Each rank by itself, but in rounds that all begin together. A rank that failed announces
/// it instead of its next round.
void move_long(MpiFile& file, MPI_Comm comm, RoundMover& mover) {
  constexpr std::int64_t kFailed = std::int64_t{1} << 32;  // more than ranks that have data
  std::exception_ptr failure;
  for (;;) {
    Round round;
    if (!failure) failure = failure_of([&] { round = mover.take_long(); });
    const std::int64_t sum =
        agreed_sum(comm, failure ? kFailed : std::int64_t{!round.runs.empty()});
    if (sum >= kFailed) throw_alike(comm, failure);
    if (sum == 0) return;
    failure = failure_of([&] {
      file.transfer(round.runs);
      mover.moved(round);
    });
  }
}

/// Window after window of the file, each in one call of all ranks.
void move_short(MpiFile& file, MPI_Comm comm, RoundMover& mover) {
  constexpr std::int64_t kFailed = -1;
  std::exception_ptr failure;
  for (bool used = false;; used = true) {
    const std::int64_t begin = agreed_least(comm, failure ? kFailed : mover.next_short());
    if (begin == kFailed) throw_alike(comm, failure);
    if (begin == kNoEnd) {
      if (used) file.end_together();
      return;
    }
    Round round;
    failure = failure_of([&] { round = mover.take_short(begin + file.window()); });
    if (failure) round = {};  // all the same it takes part in the call
    const std::exception_ptr transfer_failure =
        failure_of([&] { file.transfer_together(round.runs); });
    if (!failure) failure = transfer_failure;
    if (!failure) failure = failure_of([&] { mover.moved(round); });
  }
}

}  // namespace

PieceQueue::PieceQueue(CollectiveBuffering mode, int ranks) {
  switch (mode) {
    case CollectiveBuffering::kOn:
      shortest_ = kNoEnd;
      break;
    case CollectiveBuffering::kOff:
      shortest_ = 0;
      break;
    default:
      shortest_ = ranks > 1 ? kLongRun : 0;
  }
}

void PieceQueue::add(Piece piece) {
  const bool strided = piece.run_elements() < piece.range.size();
  const bool is_short = shortest_ == kNoEnd ||
                        (strided && piece.run_elements() * piece.element_bytes < shortest_);
  (is_short ? short_ : long_).push_back(std::move(piece));
}

Round PieceQueue::take_long(std::int64_t bytes) {
  Round round;
  auto piece = long_.begin();
  while (piece != long_.end() && bytes > 0) {
    bytes -= take_runs(*piece, bytes, kNoEnd, round);
    if (piece->range.size() <= 0) ++piece;
  }
  long_.erase(long_.begin(), piece);
  return round;
}

Round PieceQueue::take_short(std::int64_t end) {
  Round round;
  for (Piece& piece : short_) take_runs(piece, kNoEnd, end, round);
  std::erase_if(short_, [](const Piece& piece) { return piece.range.size() <= 0; });
  return round;
}

std::int64_t PieceQueue::next_short() const {
  std::int64_t next = kNoEnd;
  for (const Piece& piece : short_) next = std::min(next, piece.next_offset());
  return next;
}

std::vector<Piece*> PieceQueue::rest() {
  std::vector<Piece*> all;
  for (std::vector<Piece>* pieces : {&long_, &short_}) {
    for (Piece& piece : *pieces) all.push_back(&piece);
  }
  return all;
}

void PieceQueue::clear() {
  long_.clear();
  short_.clear();
}

void move_rounds(MpiFile& file, MPI_Comm comm, RoundMover& mover) {
  move_long(file, comm, mover);
  move_short(file, comm, mover);
}

}  // namespace pleat::io
