// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A matrix product for one CPU thread: both operands are copied block by block into
/// the order in which the innermost loops read them (Goto and van de Geijn, ACM TOMS 34, 2008;
/// Van Zee and van de Geijn, ACM TOMS 41, 2015).
///
/// A strip of kRows rows of a times a strip of kColumns columns of b stays in registers; the
/// strip of b in the first-level cache, the block of a in the second, that of b in the third.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "gemm_host.hpp"

#if defined(PLEAT_PACKED_GEMM)

namespace pleat::kernels::packed {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kRows = 12;  // 24 of 32 registers accumulate
#else
inline constexpr int kVectorBytes = 32;
inline constexpr int kRows = 6;  // 12 of 16 registers accumulate
#endif

template <class T>
struct Block {
  using Vector [[gnu::vector_size(kVectorBytes)]] = T;
  /// The same at an address that is only aligned like T.
  using Loose [[gnu::vector_size(kVectorBytes), gnu::aligned(alignof(T)), gnu::may_alias]] = T;
  static constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
  static constexpr int kColumns = 2 * kLanes;
  // At most: a strip of b 32 KiB, a block of a 288 KiB, a block of b 2 MiB. Long strips visit c
  // seldom, which pays where two threads share little memory bandwidth.
  static constexpr std::int64_t kInner = 2048 / static_cast<std::int64_t>(sizeof(T));
  static constexpr std::int64_t kBlockRows = 144;
  static constexpr std::int64_t kBlockColumns = 1024;
};

/// \brief Memory for the packed blocks of one thread, kept between products.
template <class T>
class Workspace {
 public:
  T* a() { return a_.get(); }
  T* b() { return b_.get(); }
  /// \brief Sums that are not rounded yet.
  T* c(std::int64_t count) {
    if (static_cast<std::int64_t>(c_.size()) < count) c_.resize(static_cast<std::size_t>(count));
    return c_.data();
  }

 private:
  struct Free {
    void operator()(T* pointer) const { std::free(pointer); }
  };
  static T* allocate(std::int64_t rows) {
    constexpr std::size_t kPage = 4096;
    // One page more: packing may write a vector past the end.
    const std::size_t bytes = static_cast<std::size_t>(rows * Block<T>::kInner) * sizeof(T);
    void* const pointer = std::aligned_alloc(kPage, (bytes / kPage + 2) * kPage);
    if (pointer == nullptr) throw std::bad_alloc();
    return static_cast<T*>(pointer);
  }
  std::unique_ptr<T, Free> a_{allocate(Block<T>::kBlockRows)};
  std::unique_ptr<T, Free> b_{allocate(Block<T>::kBlockColumns)};
  std::vector<T> c_;
};

/// \brief c[kRows, kColumns] = alpha a b + beta c from packed strips of length k.
template <class T>
[[gnu::noinline]] void multiply_strips(std::int64_t k, const T* __restrict__ a,
                                       const T* __restrict__ b, T alpha, T beta,
                                       T* __restrict__ c, std::int64_t c_stride) {
  using Vector = typename Block<T>::Vector;
  using Loose = typename Block<T>::Loose;
  constexpr int kLanes = Block<T>::kLanes;
  Vector sum[kRows][2];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    sum[i][0] = Vector{};
    sum[i][1] = Vector{};
    // The tile of c is wanted at the end only.
    __builtin_prefetch(c + i * c_stride, 1);
    __builtin_prefetch(c + i * c_stride + 2 * kLanes - 1, 1);
  }
#pragma GCC unroll 4
  for (std::int64_t p = 0; p < k; ++p) {
    Vector b0 = *reinterpret_cast<const Vector*>(b);
    Vector b1 = *reinterpret_cast<const Vector*>(b + kLanes);
    // Nothing but a hint: both stay in registers instead of being read again for every row.
    asm("" : "+v"(b0), "+v"(b1));
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vector element = a[i] - Vector{};  // x - 0 is x for every x: a plain broadcast
      sum[i][0] += element * b0;
      sum[i][1] += element * b1;
    }
    a += kRows;
    b += 2 * kLanes;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    auto* const left = reinterpret_cast<Loose*>(c + i * c_stride);
    auto* const right = reinterpret_cast<Loose*>(c + i * c_stride + kLanes);
    if (beta == T(0)) {  // c may hold NaN
      *left = alpha * sum[i][0];
      *right = alpha * sum[i][1];
    } else {
      *left = alpha * sum[i][0] + beta * *left;
      *right = alpha * sum[i][1] + beta * *right;
    }
  }
}

/// \brief A matrix as packing sees it: `strip` runs along the rows of op(a) or the columns of
/// op(b), `inner` along the dimension that is summed over. One of the two steps is 1.
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
  constexpr Index8 kLow = {0, 8, 1, 9, 4, 12, 5, 13}, kHigh = {2, 10, 3, 11, 6, 14, 7, 15};
  constexpr Index8 kFirst = {0, 1, 8, 9, 4, 5, 12, 13}, kSecond = {2, 3, 10, 11, 6, 7, 14, 15};
  constexpr Index8 kLeft = {0, 1, 2, 3, 8, 9, 10, 11}, kRight = {4, 5, 6, 7, 12, 13, 14, 15};
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
    const V8 column = __builtin_shuffle(quad[p % 4], quad[p % 4 + 4], p < 4 ? kLeft : kRight);
    *reinterpret_cast<Loose8*>(target + p * kSize) = column;
  }
}

/// \brief One full strip whose runs are contiguous along `inner`.
template <int kSize, class S, class T>
void pack_transposed(const S* source, std::int64_t step, std::int64_t inner, T* target) {
  std::int64_t p = 0;
  if constexpr (sizeof(T) == 4) {
    for (; p + 8 <= inner; p += 8) {
      // From the last eight lanes to the first: rubbish beyond a strip is then overwritten.
      for (int r = (kSize - 1) / 8 * 8; r >= 0; r -= 8) {
        transpose_8x8<kSize>(source + r * step + p, step, std::min(8, kSize - r),
                             target + p * kSize + r);
      }
    }
  }
  for (; p < inner; ++p) {
    for (int r = 0; r < kSize; ++r) target[p * kSize + r] = static_cast<T>(source[r * step + p]);
  }
}

/// \brief kSize numbers that follow each other. \param last  nothing may be read or written
/// beyond them
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

/// \brief Full strips whose runs are contiguous along `strip`: a few rows at a time, so that
/// memory is read in long runs.
template <int kSize, class S, class T>
void pack_straight(const S* source, std::int64_t step, std::int64_t strips, std::int64_t inner,
                   T* target) {
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
      last[p * kSize + r] = r < left ? static_cast<T>(*x.at(strips * kSize + r, p)) : T(0);
    }
  }
}

/// \brief multiply_strips for a tile that the border of c cuts, or that is rounded.
template <class T, class C>
void multiply_border(std::int64_t k, const T* a, const T* b, T alpha, T beta, C* c,
                     std::int64_t c_stride, std::int64_t rows, std::int64_t columns) {
  constexpr int kColumns = Block<T>::kColumns;
  alignas(64) T tile[kRows * kColumns];
  multiply_strips<T>(k, a, b, alpha, T(0), tile, kColumns);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      C& result = c[i * c_stride + j];
      result = C(tile[i * kColumns + j] + (beta == T(0) ? T(0) : beta * T(result)));
    }
  }
}

/// \brief All tiles of a packed block of a times a packed block of b.
template <class T, class C>
void multiply_blocks(std::int64_t rows, std::int64_t columns, std::int64_t k, const T* a,
                     const T* b, T alpha, T beta, C* c, std::int64_t c_stride) {
  constexpr int kColumns = Block<T>::kColumns;
  for (std::int64_t j = 0; j < columns; j += kColumns) {
    const std::int64_t width = std::min<std::int64_t>(kColumns, columns - j);
    for (std::int64_t i = 0; i < rows; i += kRows) {
      const std::int64_t height = std::min<std::int64_t>(kRows, rows - i);
      C* const tile = c + i * c_stride + j;
      if constexpr (std::is_same_v<T, C>) {
        if (height == kRows && width == kColumns) {
          multiply_strips<T>(k, a + i * k, b + j * k, alpha, beta, tile, c_stride);
          continue;
        }
      }
      multiply_border<T, C>(k, a + i * k, b + j * k, alpha, beta, tile, c_stride, height, width);
    }
  }
}

/// \brief `total` in the fewest equal blocks of at most `limit`, each a multiple of `unit`.
inline std::int64_t even_block(std::int64_t total, std::int64_t limit, std::int64_t unit) {
  const std::int64_t blocks = (total + limit - 1) / limit;
  const std::int64_t size = (total + blocks - 1) / blocks;
  return std::min(limit, (size + unit - 1) / unit * unit);
}

/// \brief The product block by block; m, n and k are positive. c receives one block of the
/// inner dimension after the other.
template <class A, class B, class C>
void multiply_in_place(const HostProduct<A, B, C>& product, Workspace<Accumulator<C>>& workspace) {
  using T = Accumulator<C>;
  constexpr int kColumns = Block<T>::kColumns;
  const bool ta = product.transpose_a == Transpose::kYes;
  const bool tb = product.transpose_b == Transpose::kYes;
  const Operand<A> a{product.a, ta ? 1 : product.a_stride, ta ? product.a_stride : 1};
  const Operand<B> b{product.b, tb ? product.b_stride : 1, tb ? 1 : product.b_stride};
  const std::int64_t inner = even_block(product.k, Block<T>::kInner, 8);
  const std::int64_t rows = even_block(product.m, Block<T>::kBlockRows, kRows);
  const std::int64_t columns = even_block(product.n, Block<T>::kBlockColumns, kColumns);
  for (std::int64_t j = 0; j < product.n; j += columns) {
    const std::int64_t width = std::min(columns, product.n - j);
    for (std::int64_t p = 0; p < product.k; p += inner) {
      const std::int64_t depth = std::min(inner, product.k - p);
      const T beta = p == 0 ? product.beta : T(1);
      pack<kColumns>(Operand<B>{b.at(j, p), b.strip_step, b.inner_step}, width, depth,
                     workspace.b());
      for (std::int64_t i = 0; i < product.m; i += rows) {
        const std::int64_t height = std::min(rows, product.m - i);
        pack<kRows>(Operand<A>{a.at(i, p), a.strip_step, a.inner_step}, height, depth,
                    workspace.a());
        multiply_blocks<T, C>(height, width, depth, workspace.a(), workspace.b(), product.alpha,
                              beta, product.c + i * product.c_stride + j, product.c_stride);
      }
    }
  }
}

/// \brief The product in panels that are summed over the whole inner dimension and then
/// rounded once.
template <class A, class B, class C>
void multiply_in_panels(const HostProduct<A, B, C>& product,
                        Workspace<Accumulator<C>>& workspace) {
  using T = Accumulator<C>;
  constexpr std::int64_t kPanelRows = 8 * Block<T>::kBlockRows;
  constexpr std::int64_t kPanelColumns = Block<T>::kBlockColumns;
  for (std::int64_t i = 0; i < product.m; i += kPanelRows) {
    for (std::int64_t j = 0; j < product.n; j += kPanelColumns) {
      HostProduct<A, B, T> panel;
      panel.m = std::min(kPanelRows, product.m - i);
      panel.n = std::min(kPanelColumns, product.n - j);
      panel.k = product.k;
      panel.transpose_a = product.transpose_a;
      panel.transpose_b = product.transpose_b;
      panel.alpha = product.alpha;
      panel.a = product.a + (panel.transpose_a == Transpose::kYes ? i : i * product.a_stride);
      panel.a_stride = product.a_stride;
      panel.b = product.b + (panel.transpose_b == Transpose::kYes ? j * product.b_stride : j);
      panel.b_stride = product.b_stride;
      panel.c = workspace.c(panel.m * panel.n);
      panel.c_stride = panel.n;
      multiply_in_place(panel, workspace);
      for (std::int64_t r = 0; r < panel.m; ++r) {
        const T* const sum = panel.c + r * panel.n;
        C* const result = product.c + (i + r) * product.c_stride + j;
        for (std::int64_t s = 0; s < panel.n; ++s) {
          result[s] =
              C(sum[s] + (product.beta == T(0) ? T(0) : product.beta * T(result[s])));
        }
      }
    }
  }
}

/// \brief The whole product on the calling thread; m, n and k are positive.
template <class A, class B, class C>
void multiply(const HostProduct<A, B, C>& product, Workspace<Accumulator<C>>& workspace) {
  if (!std::is_same_v<C, Accumulator<C>> && product.k > Block<Accumulator<C>>::kInner) {
    multiply_in_panels(product, workspace);
  } else {
    multiply_in_place(product, workspace);
  }
}

}  // namespace pleat::kernels::packed

#endif
