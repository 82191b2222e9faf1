// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Which exchange a rank is waiting for, for whoever looks at a job that hangs, and how
/// long it has waited in all: what is left of communication where it overlaps with work.

#include <atomic>
#include <chrono>

namespace pleat::comm {

/// \brief Written by the thread that exchanges, read by any.
class Waiting {
 public:
  /// \brief The name of the exchange; null while none is waited for.
  const char* exchange() const { return exchange_.load(std::memory_order_relaxed); }
  /// \brief Time waited so far; for the thread that exchanges.
  double seconds() const { return seconds_; }

 private:
  friend class WaitScope;
  std::atomic<const char*> exchange_{nullptr};
  double seconds_ = 0.0;
};

/// \brief Shows the exchange for its lifetime, which counts as waiting.
class WaitScope {
 public:
  /// \param exchange  a literal
  WaitScope(Waiting& waiting, const char* exchange) : waiting_(waiting) {
    waiting_.exchange_.store(exchange, std::memory_order_relaxed);
  }
  ~WaitScope() {
    const std::chrono::duration<double> waited =
        std::chrono::steady_clock::now() - start_;
    waiting_.seconds_ += waited.count();
    waiting_.exchange_.store(nullptr, std::memory_order_relaxed);
  }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  Waiting& waiting_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace pleat::comm
