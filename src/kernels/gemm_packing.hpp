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
using LooseVector8 [[gnu::vector_size(32), gnu::aligned(2), gnu::may_alias]] = float;
using Wide8 [[gnu::vector_size(32)]] = std::uint32_t;

/// \brief Two neighbours of the inner dimension, rounded to bf16; the first in the lower
/// half.
struct Bf16Pair {
  std::uint32_t bits;
};

/// \brief Numbers of the inner dimension that one packed element holds.
template <class Element>
inline constexpr std::int64_t kNumbers = std::is_same_v<Element, Bf16Pair> ? 2 : 1;

template <class Element>
std::int64_t elements_of(std::int64_t numbers) {
  return (numbers + kNumbers<Element> - 1) / kNumbers<Element>;
}

/// \brief The upper halves of fp32 numbers, rounded like Bf16.
template <class Wide>
Wide round_to_upper(Wide wide) {
  const Wide nearest = wide + 0x7FFFU + ((wide >> 16) & 1U);
  return ((wide & 0x7FFFFFFFU) > 0x7F800000U ? wide | 0x400000U : nearest) >> 16;
}

/// \brief Eight numbers as fp32.
inline Vector8 load8(const float* source) {
  return *reinterpret_cast<const LooseVector8*>(source);
}
/// \brief The bits of eight numbers, each in the lower half of a lane.
inline Wide8 load8_bits(const Bf16* source) {
  using Bits8 [[gnu::vector_size(16), gnu::aligned(2), gnu::may_alias]] = std::uint16_t;
  const Bits8 bits = *reinterpret_cast<const Bits8*>(source);
  return __builtin_convertvector(bits, Wide8);
}
inline Wide8 load8_bits(const float* source) {
  return round_to_upper(reinterpret_cast<Wide8>(load8(source)));
}
inline Vector8 load8(const Bf16* source) {
  return reinterpret_cast<Vector8>(load8_bits(source) << 16);
}

/// \brief Eight elements from numbers that follow each other along the inner dimension; a
/// pair is carried like a number, nothing is computed with it.
template <class Element, class S>
Vector8 load8_elements(const S* source) {
  if constexpr (!std::is_same_v<Element, Bf16Pair>) {
    return load8(source);
  } else if constexpr (std::is_same_v<S, Bf16>) {
    return *reinterpret_cast<const LooseVector8*>(source);
  } else {
    using Bits16 [[gnu::vector_size(32)]] = std::uint16_t;
    using Bits8 [[gnu::vector_size(16)]] = std::uint16_t;
    const Bits8 low = __builtin_convertvector(load8_bits(source), Bits8);
    const Bits8 high = __builtin_convertvector(load8_bits(source + 8), Bits8);
    const Bits16 both = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
                                                10, 11, 12, 13, 14, 15);
    return reinterpret_cast<Vector8>(both);
  }
}

/// \brief The element that begins at source. \param left  numbers from there to the end
/// of the inner dimension
template <class Element, class S>
Element make_element(const S* source, [[maybe_unused]] std::int64_t inner_step,
                     [[maybe_unused]] std::int64_t left) {
  if constexpr (std::is_same_v<Element, Bf16Pair>) {
    const auto bits = [](const S& x) -> std::uint32_t {
      return Bf16(static_cast<float>(x)).bits;
    };
    return {bits(source[0]) | (left > 1 ? bits(source[inner_step]) << 16 : 0U)};
  } else {
    return static_cast<Element>(*source);
  }
}

/// \brief Eight runs of eight elements, transposed and written one per `kSize` elements.
/// Missing runs are null; the lanes that they would fill receive rubbish.
template <int kSize, class Element, class S>
void transpose_8x8(const S* source, std::int64_t step, int runs, Element* target) {
  using V8 = Vector8;
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
    row[r] = r < runs ? load8_elements<Element>(source + r * step) : V8{};
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
    *reinterpret_cast<LooseVector8*>(target + p * kSize) = column;
  }
}

/// \brief One full strip whose runs are contiguous along `inner`.
template <int kSize, class S, class Element>
void pack_transposed(const S* source, std::int64_t step, std::int64_t inner,
                     Element* target) {
  constexpr std::int64_t kStep = kNumbers<Element>;
  std::int64_t p = 0;  // elements
  if constexpr (sizeof(Element) == 4) {
    for (; (p + 8) * kStep <= inner; p += 8) {
      // From the last eight lanes to the first: rubbish beyond a strip is then
      // overwritten.
      for (int r = (kSize - 1) / 8 * 8; r >= 0; r -= 8) {
        transpose_8x8<kSize>(source + r * step + p * kStep, step, std::min(8, kSize - r),
                             target + p * kSize + r);
      }
    }
  }
  for (; p * kStep < inner; ++p) {
    for (int r = 0; r < kSize; ++r) {
      target[p * kSize + r] =
          make_element<Element>(source + r * step + p * kStep, 1, inner - p * kStep);
    }
  }
}

/// \brief kSize elements whose numbers follow each other, in two rows for pairs.
/// \param last  nothing may be read or written beyond them
template <int kSize, class S, class Element>
void copy_run(const S* source, std::int64_t step, bool last, std::int64_t left,
              Element* target) {
  if constexpr (std::is_same_v<S, Element>) {
    std::memcpy(target, source, kSize * sizeof(Element));
  } else if ((last && kSize % 8 != 0) || left < kNumbers<Element>) {
    for (int r = 0; r < kSize; ++r) {
      target[r] = make_element<Element>(source + r, step, left);
    }
  } else {
    for (int r = 0; r < kSize; r += 8) {
      LooseVector8* const to = reinterpret_cast<LooseVector8*>(target + r);
      if constexpr (std::is_same_v<Element, Bf16Pair>) {
        *to = reinterpret_cast<Vector8>(load8_bits(source + r) |
                                        (load8_bits(source + step + r) << 16));
      } else {
        *to = load8(source + r);
      }
    }
  }
}

/// \brief Full strips whose runs are contiguous along `strip`: a few rows at a time, so
/// that memory is read in long runs.
template <int kSize, class S, class Element>
void pack_straight(const S* source, std::int64_t step, std::int64_t strips,
                   std::int64_t inner, Element* target) {
  constexpr std::int64_t kRun = 8;
  constexpr std::int64_t kStep = kNumbers<Element>;
  const std::int64_t elements = elements_of<Element>(inner);
  for (std::int64_t first = 0; first < elements; first += kRun) {
    const std::int64_t end = std::min(elements, first + kRun);
    for (std::int64_t strip = 0; strip < strips; ++strip) {
      const S* const from = source + strip * kSize;
      Element* const to = target + strip * kSize * elements;
      for (std::int64_t p = first; p < end; ++p) {
        copy_run<kSize>(from + p * kStep * step, step, p + 1 == elements,
                        inner - p * kStep, to + p * kSize);
      }
    }
  }
}

/// \brief target[strip][p][r] = x(strip kSize + r, p), 0 beyond the last of `count`;
/// where an element is a pair, p counts pairs.
/// \param inner  numbers along the inner dimension
template <int kSize, class S, class Element>
void pack(const Operand<S>& x, std::int64_t count, std::int64_t inner, Element* target) {
  constexpr std::int64_t kStep = kNumbers<Element>;
  const std::int64_t elements = elements_of<Element>(inner);
  const std::int64_t strips = count / kSize;
  if (x.strip_step == 1) {
    pack_straight<kSize>(x.data, x.inner_step, strips, inner, target);
  } else {
    for (std::int64_t strip = 0; strip < strips; ++strip) {
      pack_transposed<kSize>(x.at(strip * kSize, 0), x.strip_step, inner,
                             target + strip * kSize * elements);
    }
  }
  const std::int64_t left = count - strips * kSize;
  if (left == 0) return;
  Element* const last = target + strips * kSize * elements;
  for (std::int64_t p = 0; p < elements; ++p) {
    for (std::int64_t r = 0; r < kSize; ++r) {
      last[p * kSize + r] =
          r < left ? make_element<Element>(x.at(strips * kSize + r, p * kStep),
                                           x.inner_step, inner - p * kStep)
                   : Element{};
    }
  }
}

}  // namespace pleat::kernels::packed

#endif
