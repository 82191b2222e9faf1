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
  explicit Pending(std::function<void()> finish) : finish_(std::move(finish)) {}
  Pending(Pending&& other) noexcept : finish_(std::exchange(other.finish_, nullptr)) {}
  Pending& operator=(Pending&& other) {
    wait();
    finish_ = std::exchange(other.finish_, nullptr);
    return *this;
  }
  ~Pending() { wait(); }

  bool done() const { return !finish_; }
  void wait() {
    if (finish_) std::exchange(finish_, nullptr)();
  }

 private:
  std::function<void()> finish_;
};

}  // namespace pleat::comm
