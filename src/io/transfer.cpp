// SPDX-License-Identifier: Apache-2.0
#include "transfer.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <sys/statvfs.h>

#include "agreement.hpp"
#include "pleat/comm/check_mpi.hpp"
#include "staged_transfer.hpp"

namespace pleat::io {

namespace {

constexpr std::int64_t kLongRun = 256 << 10;  // bytes; from there on gathering costs more

std::int64_t agreed_least(MPI_Comm comm, std::int64_t value) {
  PLEAT_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MIN, comm));
  return value;
}

/// Of the memory that ranks of a machine share, small in many containers. It is given out
/// page by page, and a page too many ends the process with SIGBUS.
bool has_room_to_share(std::int64_t bytes) {
  constexpr std::int64_t kForOthers = 1 << 20;
  struct statvfs room {};
  if (statvfs("/dev/shm", &room) != 0) return true;  // it lies elsewhere
  return static_cast<std::int64_t>(room.f_bavail * room.f_frsize) >= bytes + kForOthers;
}

/// \return as take_runs()
std::int64_t take_from(std::vector<Piece>& pieces, std::int64_t bytes, Round& round) {
  std::int64_t taken = 0;
  auto piece = pieces.begin();
  while (piece != pieces.end() && taken < bytes) {
    taken += take_runs(*piece, bytes - taken, kNoEnd, round);
    if (piece->range.size() <= 0) ++piece;
  }
  pieces.erase(pieces.begin(), piece);
  return taken;
}

/// Each rank by itself; where one fails, the others have done their parts in vain.
void move_long(MpiFile& file, MPI_Comm comm, RoundMover& mover) {
  throw_alike(comm, failure_of([&] {
    for (Round round = mover.take_long(); !round.runs.empty(); round = mover.take_long()) {
      file.transfer(round.runs);
      mover.moved(round);
    }
  }));
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

std::future<void> begin_beside(Round round, std::function<void(Round&)> work) {
  constexpr std::int64_t kWorthAThread = 1 << 20;  // bytes
  std::int64_t bytes = 0;
  for (const RoundPart& part : round.parts) bytes += part.bytes;
  const auto policy = bytes < kWorthAThread ? std::launch::deferred : std::launch::async;
  return std::async(policy, [round = std::move(round), work = std::move(work)]() mutable {
    work(round);
  });
}

PieceQueue::PieceQueue(CollectiveBuffering mode, PlainFile::Access access, MPI_Comm comm) {
  const bool one_stream = access == PlainFile::Access::kRead && hosts_of(comm) == 1;
  switch (mode) {
    case CollectiveBuffering::kOn:
      shortest_ = kNoEnd;
      break;
    case CollectiveBuffering::kOff:
      shortest_ = 0;
      break;
    default:
      shortest_ = ranks_of(comm) == 1 ? 0 : one_stream ? kNoEnd : kLongRun;
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
  take_from(long_, bytes, round);
  return round;
}

Round PieceQueue::take_any(std::int64_t bytes) {
  Round round;
  bytes -= take_from(long_, bytes, round);
  take_from(short_, bytes, round);
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

std::unique_ptr<HostStage> make_stage(MPI_Comm comm, const CheckpointHints& hints,
                                      const RoundMover& mover) {
  constexpr std::int64_t kBytes = 16 << 20;
  constexpr std::int64_t kLeastBytes = 8 << 10;
  const bool wanted = hints.collective_buffering == CollectiveBuffering::kAutomatic &&
                      ranks_of(comm) > 1 && hosts_of(comm) == 1;
  if (!wanted || agreed_least(comm, mover.next_short()) == kNoEnd) return nullptr;
  const std::int64_t bytes =
      std::max(hints.buffer_bytes > 0 ? hints.buffer_bytes : kBytes, kLeastBytes);
  if (agreed_least(comm, has_room_to_share(bytes) ? 1 : 0) == 0) return nullptr;
  return std::make_unique<HostStage>(comm, bytes);
}

std::exception_ptr move_staged(HostStage& stage, const std::optional<PlainFile>& plain,
                               RoundMover& mover, const std::exception_ptr& earlier) {
  const MoveBytes read = [&plain](const FileRun& run) {
    plain->read_at(run.offset, {run.memory, static_cast<std::size_t>(run.bytes)});
  };
  if (plain && plain->access() == PlainFile::Access::kRead) {
    return read_staged(stage, mover, read, earlier);
  }
  const MoveBytes write = [&plain](const FileRun& run) {
    plain->write_at(run.offset, {run.memory, static_cast<std::size_t>(run.bytes)});
    plain->begin_write_back(run.offset, run.bytes);
  };
  return write_staged(stage, mover, read, write, earlier);
}

void move_rounds(MpiFile& file, const std::optional<PlainFile>& plain, MPI_Comm comm,
                 const CheckpointHints& hints, RoundMover& mover) {
  move_long(file, comm, mover);
  if (const std::unique_ptr<HostStage> stage = make_stage(comm, hints, mover)) {
    throw_alike(comm, move_staged(*stage, plain, mover));
  } else {
    move_short(file, comm, mover);
  }
}

}  // namespace pleat::io
