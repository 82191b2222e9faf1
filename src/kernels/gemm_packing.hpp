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

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#else
inline constexpr int kVectorBytes = 32;
#endif
/// \brief Numbers of four bytes in a vector.
inline constexpr int kWords = kVectorBytes / 4;

using FloatVector [[gnu::vector_size(kVectorBytes)]] = float;
using LooseFloats [[gnu::vector_size(kVectorBytes), gnu::aligned(2), gnu::may_alias]] =
    float;
using WideVector [[gnu::vector_size(kVectorBytes)]] = std::uint32_t;
/// \brief As many numbers of two bytes.
using HalfVector [[gnu::vector_size(kVectorBytes / 2)]] = std::uint16_t;
using LooseHalves
    [[gnu::vector_size(kVectorBytes / 2), gnu::aligned(2), gnu::may_alias]] =
        std::uint16_t;

/// \brief Two bf16 neighbours of the inner dimension; the first in the lower half.
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

/// \brief kWords numbers as fp32.
inline FloatVector load_floats(const float* source) {
  return *reinterpret_cast<const LooseFloats*>(source);
}
/// \brief The bits of kWords numbers as bf16, each in the lower half of a lane.
inline WideVector load_bf16_bits(const Bf16* source) {
  const LooseHalves bits = *reinterpret_cast<const LooseHalves*>(source);
  return __builtin_convertvector(bits, WideVector);
}
inline FloatVector load_floats(const Bf16* source) {
  return reinterpret_cast<FloatVector>(load_bf16_bits(source) << 16);
}

/// \brief kWords elements from numbers that follow each other along the inner dimension;
/// a pair is carried like a number, nothing is computed with it.
template <class Element, class S>
FloatVector load_elements(const S* source) {
  if constexpr (std::is_same_v<Element, Bf16Pair>) {
    return *reinterpret_cast<const LooseFloats*>(source);
  } else {
    return load_floats(source);
  }
}

/// \brief The element that begins at source. \param left  numbers from there to the end
/// of the inner dimension
template <class Element, class S>
Element make_element(const S* source, [[maybe_unused]] std::int64_t inner_step,
                     [[maybe_unused]] std::int64_t left) {
  if constexpr (std::is_same_v<Element, Bf16Pair>) {
    return {source[0].bits |
            (left > 1 ? std::uint32_t{source[inner_step].bits} << 16 : 0)};
  } else {
    return static_cast<Element>(*source);
  }
}

#if defined(__AVX512F__)
/// \brief Transposes the four parts of four vectors, as if each part were one number.
inline void transpose_parts(FloatVector& a, FloatVector& b, FloatVector& c,
                            FloatVector& d) {
  using Index [[gnu::vector_size(64)]] = std::int32_t;
  constexpr Index kEven = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
  constexpr Index kOdd = {4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31};
  const FloatVector ab_even = __builtin_shuffle(a, b, kEven);
  const FloatVector ab_odd = __builtin_shuffle(a, b, kOdd);
  const FloatVector cd_even = __builtin_shuffle(c, d, kEven);
  const FloatVector cd_odd = __builtin_shuffle(c, d, kOdd);
  a = __builtin_shuffle(ab_even, cd_even, kEven);
  b = __builtin_shuffle(ab_odd, cd_odd, kEven);
  c = __builtin_shuffle(ab_even, cd_even, kOdd);
  d = __builtin_shuffle(ab_odd, cd_odd, kOdd);
}
#else
inline void transpose_parts(FloatVector& a, FloatVector& b) {
  using Index [[gnu::vector_size(32)]] = std::int32_t;
  constexpr Index kLeft = {0, 1, 2, 3, 8, 9, 10, 11},
                  kRight = {4, 5, 6, 7, 12, 13, 14, 15};
  const FloatVector left = __builtin_shuffle(a, b, kLeft);
  b = __builtin_shuffle(a, b, kRight);
  a = left;
}
#endif

/// \brief Four vectors: within each part of 16 bytes, four by four numbers are
/// transposed.
inline void transpose_within_parts(FloatVector* row) {
  using Index [[gnu::vector_size(kVectorBytes)]] = std::int32_t;
#if defined(__AVX512F__)
  constexpr Index kLow = {0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29},
                  kHigh = {2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31},
                  kFirst = {0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29},
                  kSecond = {2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31};
#else
  constexpr Index kLow = {0, 8, 1, 9, 4, 12, 5, 13}, kHigh = {2, 10, 3, 11, 6, 14, 7, 15},
                  kFirst = {0, 1, 8, 9, 4, 5, 12, 13},
                  kSecond = {2, 3, 10, 11, 6, 7, 14, 15};
#endif
  const FloatVector low01 = __builtin_shuffle(row[0], row[1], kLow);
  const FloatVector high01 = __builtin_shuffle(row[0], row[1], kHigh);
  const FloatVector low23 = __builtin_shuffle(row[2], row[3], kLow);
  const FloatVector high23 = __builtin_shuffle(row[2], row[3], kHigh);
  row[0] = __builtin_shuffle(low01, low23, kFirst);
  row[1] = __builtin_shuffle(low01, low23, kSecond);
  row[2] = __builtin_shuffle(high01, high23, kFirst);
  row[3] = __builtin_shuffle(high01, high23, kSecond);
}

/// \brief kWords runs of kWords elements, transposed and written one per `kSize`
/// elements. The lanes of missing runs receive zeros.
template <int kSize, int kRuns, class Element, class S>
void transpose_square(const S* source, std::int64_t step, Element* target) {
  FloatVector row[kWords];
#pragma GCC unroll 16
  for (int r = 0; r < kWords; ++r) {
    if (r < kRuns) {
      __builtin_prefetch(source + r * step + 2 * kWords * kNumbers<Element>);
      row[r] = load_elements<Element>(source + r * step);
    } else {
      row[r] = FloatVector{};
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kWords; r += 4) transpose_within_parts(row + r);
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
#if defined(__AVX512F__)
    transpose_parts(row[r], row[r + 4], row[r + 8], row[r + 12]);
#else
    transpose_parts(row[r], row[r + 4]);
#endif
  }
#pragma GCC unroll 16
  for (int p = 0; p < kWords; ++p) {
    *reinterpret_cast<LooseFloats*>(target + p * kSize) = row[p];
  }
}

/// \brief One full strip whose runs are contiguous along `inner`.
template <int kSize, class S, class Element>
void pack_transposed(const S* source, std::int64_t step, std::int64_t inner,
                     Element* target) {
  constexpr std::int64_t kStep = kNumbers<Element>;
  std::int64_t p = 0;  // elements
  if constexpr (sizeof(Element) == 4) {
    // From the last lanes to the first: zeros beyond a strip are then overwritten.
    constexpr int kLast = (kSize - 1) / kWords * kWords;
    for (; (p + kWords) * kStep <= inner; p += kWords) {
      const S* const from = source + p * kStep;
      Element* const to = target + p * kSize;
      transpose_square<kSize, kSize - kLast>(from + kLast * step, step, to + kLast);
      for (int r = kLast - kWords; r >= 0; r -= kWords) {
        transpose_square<kSize, kWords>(from + r * step, step, to + r);
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
  } else if ((last && kSize % kWords != 0) || left < kNumbers<Element>) {
    for (int r = 0; r < kSize; ++r) {
      target[r] = make_element<Element>(source + r, step, left);
    }
  } else {
    for (int r = 0; r < kSize; r += kWords) {
      LooseFloats* const to = reinterpret_cast<LooseFloats*>(target + r);
      if constexpr (std::is_same_v<Element, Bf16Pair>) {
        *to = reinterpret_cast<FloatVector>(load_bf16_bits(source + r) |
                                            (load_bf16_bits(source + step + r) << 16));
      } else {
        *to = load_floats(source + r);
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
        for (int line = 0; line < kSize; line += 64 / static_cast<int>(sizeof(S))) {
          __builtin_prefetch(from + (p + kRun) * kStep * step + line);
        }
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
