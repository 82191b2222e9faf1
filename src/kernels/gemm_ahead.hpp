// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the product of packed blocks fetches meanwhile for the packing after it.
///
/// Packing alone would wait for memory, and the product alone leaves memory idle: weights
/// come from there in every step.

#include <algorithm>
#include <cstdint>

#include "gemm_packing.hpp"

#if defined(PLEAT_PACKED_GEMM)

namespace pleat::kernels::packed {

/// \brief A walk over runs of bytes, part by part, each spread over kSteps prefetches.
class Ahead {
 public:
  /// \brief Steps of the inner loop, each with one prefetch, for one part.
  static constexpr std::int64_t kSteps = 32;
  static constexpr std::int64_t kLine = 64;

  /// \brief Nothing is wanted.
  Ahead() = default;
  /// \param runs  runs of `bytes` bytes, `stride` bytes from one to the next
  /// \param looks  how often next() will be called: the parts are as small as that allows
  Ahead(const void* begin, std::int64_t runs, std::int64_t bytes, std::int64_t stride,
        std::int64_t looks)
      : run_(static_cast<const char*>(begin)), runs_(runs), bytes_(bytes), stride_(stride) {
    const std::int64_t parts =
        std::max<std::int64_t>(1, looks / std::max<std::int64_t>(1, runs));
    const std::int64_t size = (bytes + parts - 1) / parts;
    // No line is skipped, and the steps of a part are equal.
    part_ = std::clamp((size + kSteps - 1) / kSteps * kSteps, kLine, kSteps * kLine);
  }

  bool done() const { return runs_ == 0; }
  /// \brief Where the next part begins, and the bytes from one of its prefetches to the next.
  struct Part {
    const char* begin;
    std::int64_t step;
  };
  Part next() {
    if (done()) return {run_, 0};
    const Part part{run_ + used_, part_ / kSteps};
    used_ += part_;
    if (used_ >= bytes_) {
      used_ = 0;
      if (--runs_ > 0) run_ += stride_;
    }
    return part;
  }

 private:
  const char* run_ = nullptr;
  std::int64_t runs_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t stride_ = 0;
  std::int64_t part_ = 0;
  std::int64_t used_ = 0;  ///< of the present run
};

/// \brief A walk over what pack() will read of x.
template <class T>
Ahead fetch_ahead(const Operand<T>& x, std::int64_t count, std::int64_t inner,
                  std::int64_t looks) {
  constexpr std::int64_t kBytes = sizeof(T);
  return x.strip_step == 1
             ? Ahead(x.data, inner, count * kBytes, x.inner_step * kBytes, looks)
             : Ahead(x.data, count, inner * kBytes, x.strip_step * kBytes, looks);
}

}  // namespace pleat::kernels::packed

#endif
