// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The stand-in's streams: a thread that works through a queue, late on purpose,
/// so that whoever does not wait reads what was there before.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

struct StandInStream {
  /// Outlives the stream where an event refers to it.
  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    std::int64_t queued = 0;
    std::int64_t done = 0;
    void wait_for(std::int64_t position) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return done >= position; });
    }
  };

  StandInStream() : worker_([this] { work(); }) {}
  ~StandInStream() {
    push(nullptr);
    worker_.join();
  }
  void push(std::function<void()> task) {
    {
      const std::lock_guard lock(progress->mutex);
      tasks_.push_back(std::move(task));
      ++progress->queued;
    }
    progress->changed.notify_all();
  }

  std::shared_ptr<Progress> progress = std::make_shared<Progress>();
  bool after_exec =
      false;  ///< held back by an event of the null stream since the last launch

 private:
  void work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(progress->mutex);
        progress->changed.wait(lock, [&] { return !tasks_.empty(); });
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      if (!task) return;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      task();
      {
        const std::lock_guard lock(progress->mutex);
        ++progress->done;
      }
      progress->changed.notify_all();
    }
  }

  std::deque<std::function<void()>> tasks_;
  std::thread worker_;
};
