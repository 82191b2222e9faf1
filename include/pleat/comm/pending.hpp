// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief An exchange under way.

#include <functional>
#include <memory>
#include <utility>

#include "pleat/comm/waiting.hpp"

namespace pleat::comm {

/// \brief An operation under way. Its views must live until wait() has returned; the
/// destructor waits. Move-only; an empty one is done.
class Pending {
 public:
  Pending() = default;
  /// \param is_ready  tells, without waiting, whether finish() would not wait; empty: unknown
  explicit Pending(std::function<void()> finish, std::function<bool()> is_ready = {})
      : finish_(std::move(finish)), is_ready_(std::move(is_ready)) {}
  Pending(Pending&& other) noexcept
      : finish_(std::exchange(other.finish_, nullptr)),
        is_ready_(std::exchange(other.is_ready_, nullptr)),
        waiting_(std::move(other.waiting_)),
        name_(other.name_) {}
  Pending& operator=(Pending&& other) {
    wait();
    finish_ = std::exchange(other.finish_, nullptr);
    is_ready_ = std::exchange(other.is_ready_, nullptr);
    waiting_ = std::move(other.waiting_);
    name_ = other.name_;
    return *this;
  }
  ~Pending() { wait(); }

  bool done() const { return !finish_; }
  /// \brief Whether wait() would return at once; false where that is not known.
  bool ready() const { return done() || (is_ready_ && is_ready_()); }
  void wait() {
    if (!finish_) return;
    const auto finish = std::exchange(finish_, nullptr);
    if (!waiting_) return finish();
    const WaitScope scope(*waiting_, name_);
    finish();
  }
  /// \brief The same operation, which says so while it is being waited for.
  /// \param name  of the exchange; a literal
  Pending shown_in(std::shared_ptr<Waiting> waiting, const char* name) && {
    waiting_ = std::move(waiting);
    name_ = name;
    return std::move(*this);
  }

 private:
  std::function<void()> finish_;
  std::function<bool()> is_ready_;
  std::shared_ptr<Waiting> waiting_;
  const char* name_ = nullptr;
};

}  // namespace pleat::comm
