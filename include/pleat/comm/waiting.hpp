// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Which exchange a rank is waiting for, for whoever looks at a job that hangs.

#include <atomic>

namespace pleat::comm {

/// \brief Written by the thread that exchanges, read by any.
class Waiting {
 public:
  /// \brief The name of the exchange; null while none is waited for.
  const char* exchange() const { return exchange_.load(std::memory_order_relaxed); }

 private:
  friend class WaitScope;
  std::atomic<const char*> exchange_{nullptr};
};

/// \brief Shows the exchange for its lifetime.
class WaitScope {
 public:
  /// \param exchange  a literal
  WaitScope(Waiting& waiting, const char* exchange) : waiting_(waiting) {
    waiting_.exchange_.store(exchange, std::memory_order_relaxed);
  }
  ~WaitScope() { waiting_.exchange_.store(nullptr, std::memory_order_relaxed); }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  Waiting& waiting_;
};

}  // namespace pleat::comm
