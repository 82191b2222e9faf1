// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief An exchange under way.

#include <functional>
#include <utility>

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
        is_ready_(std::exchange(other.is_ready_, nullptr)) {}
  Pending& operator=(Pending&& other) {
    wait();
    finish_ = std::exchange(other.finish_, nullptr);
    is_ready_ = std::exchange(other.is_ready_, nullptr);
    return *this;
  }
  ~Pending() { wait(); }

  bool done() const { return !finish_; }
  /// \brief Whether wait() would return at once; false where that is not known.
  bool ready() const { return done() || (is_ready_ && is_ready_()); }
  void wait() {
    if (finish_) std::exchange(finish_, nullptr)();
  }

 private:
  std::function<void()> finish_;
  std::function<bool()> is_ready_;
};

}  // namespace pleat::comm
