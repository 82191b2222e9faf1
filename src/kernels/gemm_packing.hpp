// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Blocks of a matrix copied into the order in which gemm_packed.hpp reads them,
/// and into the type in which it computes.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gemm_host.hpp"

#if defined(PLEAT_PACKED_GEMM)

namespace pleat::kernels::packed {

/// \brief A matrix as packing sees it: `strip` runs along the rows of op(a) or the
/// columns of op(b), `inner` along the dimension that is summed over. One of the two
/// steps is 1.
template <class T>
struct Operand {
  const T* data;
  std::int64_t strip_step;
  std::int64_t inner_step;
  const T* at(std::int64_t strip, std::int64_t inner) const {
    return data + strip * strip_step + inner * inner_step;
  }
};

using Vector8 [[gnu::vector_size(32)]] = float;
using LooseVector8 [[gnu::vector_size(32), gnu::aligned(4), gnu::may_alias]] = float;

/// \brief Eight numbers as fp32.
inline Vector8 load8(const float* source) {
  return *reinterpret_cast<const LooseVector8*>(source);
}
inline Vector8 load8(const Bf16* source) {
  using Bits8 [[gnu::vector_size(16), gnu::aligned(2), gnu::may_alias]] = std::uint16_t;
  using Wide8 [[gnu::vector_size(32)]] = std::uint32_t;
  const Bits8 bits = *reinterpret_cast<const Bits8*>(source);
  return reinterpret_cast<Vector8>(__builtin_convertvector(bits, Wide8) << 16);
}

/// \brief Eight runs of eight numbers, transposed and written one per `kSize` numbers.
/// Missing runs are null; the lanes that they would fill receive rubbish.
template <int kSize, class S>
void transpose_8x8(const S* source, std::int64_t step, int runs, float* target) {
  using V8 = Vector8;
  using Loose8 = LooseVector8;
  using Index8 [[gnu::vector_size(32)]] = std::int32_t;
  constexpr Index8 kLow = {0, 8, 1, 9, 4, 12, 5, 13},
                   kHigh = {2, 10, 3, 11, 6, 14, 7, 15};
  constexpr Index8 kFirst = {0, 1, 8, 9, 4, 5, 12, 13},
                   kSecond = {2, 3, 10, 11, 6, 7, 14, 15};
  constexpr Index8 kLeft = {0, 1, 2, 3, 8, 9, 10, 11},
                   kRight = {4, 5, 6, 7, 12, 13, 14, 15};
  V8 row[8], pair[8], quad[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r) {
    row[r] = r < runs ? load8(source + r * step) : V8{};
  }
#pragma GCC unroll 4
  for (int r = 0; r < 8; r += 2) {
    pair[r] = __builtin_shuffle(row[r], row[r + 1], kLow);
    pair[r + 1] = __builtin_shuffle(row[r], row[r + 1], kHigh);
  }
#pragma GCC unroll 2
  for (int r = 0; r < 8; r += 4) {
    quad[r] = __builtin_shuffle(pair[r], pair[r + 2], kFirst);
    quad[r + 1] = __builtin_shuffle(pair[r], pair[r + 2], kSecond);
    quad[r + 2] = __builtin_shuffle(pair[r + 1], pair[r + 3], kFirst);
    quad[r + 3] = __builtin_shuffle(pair[r + 1], pair[r + 3], kSecond);
  }
#pragma GCC unroll 8
  for (int p = 0; p < 8; ++p) {
    const V8 column =
        __builtin_shuffle(quad[p % 4], quad[p % 4 + 4], p < 4 ? kLeft : kRight);
    *reinterpret_cast<Loose8*>(target + p * kSize) = column;
  }
}

/// \brief One full strip whose runs are contiguous along `inner`.
template <int kSize, class S, class T>
void pack_transposed(const S* source, std::int64_t step, std::int64_t inner, T* target) {
  std::int64_t p = 0;
  if constexpr (sizeof(T) == 4) {
    for (; p + 8 <= inner; p += 8) {
      // From the last eight lanes to the first: rubbish beyond a strip is then
      // overwritten.
      for (int r = (kSize - 1) / 8 * 8; r >= 0; r -= 8) {
        transpose_8x8<kSize>(source + r * step + p, step, std::min(8, kSize - r),
                             target + p * kSize + r);
      }
    }
  }
  for (; p < inner; ++p) {
    for (int r = 0; r < kSize; ++r)
      target[p * kSize + r] = static_cast<T>(source[r * step + p]);
  }
}

/// \brief kSize numbers that follow each other. \param last  nothing may be read or
/// written beyond them
template <int kSize, class S, class T>
void copy_run(const S* source, bool last, T* target) {
  if constexpr (std::is_same_v<S, T>) {
    std::memcpy(target, source, kSize * sizeof(T));
  } else if (last && kSize % 8 != 0) {
    for (int r = 0; r < kSize; ++r) target[r] = static_cast<T>(source[r]);
  } else {
    for (int r = 0; r < kSize; r += 8) {
      *reinterpret_cast<LooseVector8*>(target + r) = load8(source + r);
    }
  }
}

/// \brief Full strips whose runs are contiguous along `strip`: a few rows at a time, so
/// that memory is read in long runs.
template <int kSize, class S, class T>
void pack_straight(const S* source, std::int64_t step, std::int64_t strips,
                   std::int64_t inner, T* target) {
  constexpr std::int64_t kRun = 8;
  for (std::int64_t first = 0; first < inner; first += kRun) {
    const std::int64_t end = std::min(inner, first + kRun);
    for (std::int64_t strip = 0; strip < strips; ++strip) {
      const S* const from = source + strip * kSize;
      T* const to = target + strip * kSize * inner;
      for (std::int64_t p = first; p < end; ++p) {
        copy_run<kSize>(from + p * step, p + 1 == inner, to + p * kSize);
      }
    }
  }
}

/// \brief target[strip][p][r] = x(strip kSize + r, p), 0 beyond the last of `count`.
template <int kSize, class S, class T>
void pack(const Operand<S>& x, std::int64_t count, std::int64_t inner, T* target) {
  const std::int64_t strips = count / kSize;
  if (x.strip_step == 1) {
    pack_straight<kSize>(x.data, x.inner_step, strips, inner, target);
  } else {
    for (std::int64_t strip = 0; strip < strips; ++strip) {
      pack_transposed<kSize>(x.at(strip * kSize, 0), x.strip_step, inner,
                             target + strip * kSize * inner);
    }
  }
  const std::int64_t left = count - strips * kSize;
  if (left == 0) return;
  T* const last = target + strips * kSize * inner;
  for (std::int64_t p = 0; p < inner; ++p) {
    for (std::int64_t r = 0; r < kSize; ++r) {
      last[p * kSize + r] =
          r < left ? static_cast<T>(*x.at(strips * kSize + r, p)) : T(0);
    }
  }
}

}  // namespace pleat::kernels::packed

#endif
