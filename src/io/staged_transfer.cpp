// SPDX-License-Identifier: Apache-2.0
#include "staged_transfer.hpp"

#include <algorithm>
#include <cstring>
#include <future>
#include <optional>
#include <utility>

#include "agreement.hpp"

namespace pleat::io {

namespace {

/// A part of the file that holds runs of all ranks, and this rank's runs.
struct Window {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool filled = true;           ///< by the runs, without gaps
  std::byte* memory = nullptr;  ///< where its beginning lies
  Round round;
};

enum class Direction { kFromWindow, kIntoWindow };

/// One rank's part. All ranks take all windows, also after a failure, until they have
/// agreed that there was one.
class Windows {
 public:
  Windows(HostStage& stage, RoundMover& mover, const std::exception_ptr& earlier)
      : stage_(stage), mover_(mover), half_(stage.bytes() / 2), failure_(earlier) {}

  /// Nothing at the end, or where a rank has failed.
  std::optional<Window> take();
  FileRun share_of(const Window& window, int sharers) const;
  static void copy(const Window& window, Direction direction);
  /// On a thread, which there may be none of: the others wait for this rank all the same.
  void begin(const MoveBytes& move, const Window& window, int sharers) {
    attempt(
        [&] { share_ = std::async(std::launch::async, move, share_of(window, sharers)); });
  }
  /// Waits for what was begun last, if anything was.
  void end() {
    if (share_.valid()) attempt([&] { share_.get(); });
    if (share_.valid()) share_.wait();
  }
  void attempt(const std::function<void()>& work) {
    if (!failure_) failure_ = failure_of(work);
  }
  void moved(Window& window) {
    attempt([&] { mover_.moved(window.round); });
  }
  void synchronize() { stage_.synchronize(); }
  bool a_rank_failed() const { return a_rank_failed_; }
  const std::exception_ptr& failure() const { return failure_; }

 private:
  std::int64_t agreed_begin();

  HostStage& stage_;
  RoundMover& mover_;
  std::int64_t half_;
  std::int64_t taken_ = 0;
  bool a_rank_failed_ = false;
  std::exception_ptr failure_;
  std::future<void> share_;  ///< this rank's, of the window that the file works on
};

std::int64_t Windows::agreed_begin() {
  constexpr std::int64_t kFailed = -1;
  std::int64_t begin = kNoEnd;
  for (const HostStage::Word& word :
       stage_.exchange({failure_ ? kFailed : mover_.next_short(), 0})) {
    begin = std::min(begin, word[0]);
  }
  a_rank_failed_ = begin == kFailed;
  return a_rank_failed_ ? kNoEnd : begin;
}

std::optional<Window> Windows::take() {
  Window window;
  window.begin = agreed_begin();
  if (window.begin == kNoEnd) return std::nullopt;
  window.memory = stage_.memory() + (taken_++ % 2) * half_;
  attempt([&] { window.round = mover_.take_short(window.begin + half_); });
  if (failure_) window.round = {};
  HostStage::Word mine{window.begin, 0};
  for (const FileRun& run : window.round.runs) {
    mine[0] = std::max(mine[0], run.offset + run.bytes);
    mine[1] += run.bytes;
  }
  std::int64_t bytes = 0;
  for (const HostStage::Word& word : stage_.exchange(mine)) {
    window.end = std::max(window.end, word[0]);
    bytes += word[1];
  }
  window.filled = bytes == window.end - window.begin;
  return window;
}

/// Equal parts for the first ranks that end where pages of the file do, since two ranks
/// in one page wait for each other.
FileRun Windows::share_of(const Window& window, int sharers) const {
  constexpr std::int64_t kPage = 4096;
  const std::int64_t first = window.begin / kPage * kPage;
  const std::int64_t pages = (window.end - first + kPage - 1) / kPage;
  const std::int64_t share = (pages + sharers - 1) / sharers * kPage;
  const auto end_of = [&](std::int64_t rank) {
    return std::clamp(first + rank * share, window.begin, window.end);
  };
  const std::int64_t begin = end_of(stage_.rank());
  return {begin, window.memory + (begin - window.begin),
          end_of(stage_.rank() + 1) - begin};
}

void Windows::copy(const Window& window, Direction direction) {
  for (const FileRun& run : window.round.runs) {
    std::byte* staged = window.memory + (run.offset - window.begin);
    const bool out = direction == Direction::kFromWindow;
    std::memcpy(out ? run.memory : staged, out ? staged : run.memory,
                static_cast<std::size_t>(run.bytes));
  }
}

}  // namespace

std::exception_ptr read_staged(HostStage& stage, RoundMover& mover, const MoveBytes& read,
                               const std::exception_ptr& earlier) {
  Windows windows(stage, mover, earlier);
  std::optional<Window> window = windows.take();
  if (window) windows.begin(read, *window, 1);
  std::optional<Window> next = window ? windows.take() : std::nullopt;
  while (window && !windows.a_rank_failed()) {
    windows.end();
    windows.synchronize();  // the window is complete; nobody needs the one before it any
                            // more
    if (next) windows.begin(read, *next, 1);
    windows.copy(*window, Direction::kFromWindow);
    windows.moved(*window);
    window = std::move(next);
    if (window) next = windows.take();
  }
  return windows.failure();
}

std::exception_ptr write_staged(HostStage& stage, RoundMover& mover,
                                const MoveBytes& read, const MoveBytes& write,
                                const std::exception_ptr& earlier) {
  Windows windows(stage, mover, earlier);
  while (std::optional<Window> window = windows.take()) {
    if (!window->filled) {
      windows.attempt([&] { read(windows.share_of(*window, stage.ranks())); });
      windows.synchronize();
    }
    windows.copy(*window, Direction::kIntoWindow);
    windows.moved(*window);
    windows.end();
    windows.synchronize();  // the window is complete; the one before it is in the file
    windows.begin(write, *window, stage.ranks());
  }
  windows.end();
  return windows.failure();
}

}  // namespace pleat::io
