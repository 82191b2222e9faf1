// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Ends a job that hangs, instead of letting it burn its allocation.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace pleat::train {

/// \brief A thread that waits for signs of life. When none came for the given time, it
/// prints where this rank is ("rank 3 (pipeline 1, ...): no step for 60 s: in step 17, phase
/// dispatch, all_to_all of expert"), and after a moment in which the other ranks print theirs
/// it ends the job by an exception that nobody catches (Runtime): PL0733, exit code 1.
class Watchdog {
 public:
  using Where = std::function<std::string()>;

  /// \param seconds  0: no watchdog, no thread
  /// \param where  called on the watchdog's thread; reads atomics only
  Watchdog(double seconds, std::string rank, Where where);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// \brief A step (or another piece of work that may take as long, such as loading) is done.
  void alive();

  /// \brief While it lives, the job is at another place; the inner one of two counts.
  /// What `where` reads must live as long.
  class Place {
   public:
    Place(Watchdog& watchdog, Where where);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    Watchdog& watchdog_;
    Where outer_;
  };

 private:
  Where exchange_where(Where where);
  void watch();
  [[noreturn]] void bark();

  double seconds_;
  std::string rank_;
  Where where_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t signs_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace pleat::train
