// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A matrix product for one CPU thread: both operands are copied block by block
/// into the order in which the innermost loops read them (Goto and van de Geijn, ACM TOMS
/// 34, 2008; Van Zee and van de Geijn, ACM TOMS 41, 2015).
///
/// A strip of kRows rows of a times a strip of kColumns columns of b stays in registers;
/// the strip of b in the first-level cache, the block of a in the second, that of b in
/// the third.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "gemm_ahead.hpp"
#include "gemm_packing.hpp"

#if defined(PLEAT_PACKED_GEMM)

namespace pleat::kernels::packed {

#if defined(__AVX512F__)
inline constexpr int kRows = 12;  // 24 of 32 registers accumulate
#else
inline constexpr int kRows = 6;  // 12 of 16 registers accumulate
#endif

/// \brief How a packed product multiplies: number by number in the type of its sums.
template <class T>
struct Plain {
  using Element = T;
  using Sum = T;
};

/// \brief Or two products of bf16 numbers at a time, added to an fp32 sum.
struct Pairs {
  using Element = Bf16Pair;
  using Sum = float;
};

#if defined(__AVX512BF16__)
inline constexpr bool kHasPairs = true;
#else
inline constexpr bool kHasPairs = false;
#endif

/// \brief Pairs where nothing has to be rounded for them: an operand in fp32 stays so.
template <class A, class B, class C>
using MethodOf =
    std::conditional_t<kHasPairs && std::is_same_v<A, Bf16> && std::is_same_v<B, Bf16>,
                       Pairs, Plain<Accumulator<C>>>;

template <class Method>
struct Block {
  using Element = typename Method::Element;
  using Sum = typename Method::Sum;
  using Vector [[gnu::vector_size(kVectorBytes)]] = Sum;
  using Loose
      [[gnu::vector_size(kVectorBytes), gnu::aligned(alignof(Sum)), gnu::may_alias]] =
          Sum;
  static constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(Sum));
  static constexpr int kColumns = 2 * kLanes;
  // Elements, at most: a strip of b 64 KiB (32 with AVX2), a block of a 288 KiB, a block
  // of b 2 MiB. Long strips visit c seldom, which pays where two threads share little
  // memory bandwidth.
  static constexpr std::int64_t kInner =
      2048 / static_cast<std::int64_t>(sizeof(Element));
  static constexpr std::int64_t kBlockRows = 144;
  static constexpr std::int64_t kBlockColumns = 1024;
};

/// \brief Memory for the packed blocks of one thread, kept between products.
template <class Method>
class Workspace {
 public:
  using Element = typename Method::Element;
  using Sum = typename Method::Sum;

  Element* a() { return a_.get(); }
  Element* b() { return b_.get(); }
  /// \brief Sums that are not rounded yet.
  Sum* c(std::int64_t count) {
    if (static_cast<std::int64_t>(c_.size()) < count) {
      c_.resize(static_cast<std::size_t>(count));
    }
    return c_.data();
  }

 private:
  struct Free {
    void operator()(Element* pointer) const { std::free(pointer); }
  };
  static Element* allocate(std::int64_t rows) {
    constexpr std::size_t kPage = 4096;
    // One page more: packing may write a vector past the end.
    const std::size_t bytes =
        static_cast<std::size_t>(rows * Block<Method>::kInner) * sizeof(Element);
    void* const pointer = std::aligned_alloc(kPage, (bytes / kPage + 2) * kPage);
    if (pointer == nullptr) throw std::bad_alloc();
    return static_cast<Element*>(pointer);
  }
  std::unique_ptr<Element, Free> a_{allocate(Block<Method>::kBlockRows)};
  std::unique_ptr<Element, Free> b_{allocate(Block<Method>::kBlockColumns)};
  std::vector<Sum> c_;
};

/// \brief Sums from a row of c, at an address that is only aligned like C.
template <class Method, class C>
typename Block<Method>::Vector load_result(const C* c) {
  if constexpr (std::is_same_v<C, Bf16>) {
    const LooseHalves bits = *reinterpret_cast<const LooseHalves*>(c);
    return reinterpret_cast<typename Block<Method>::Vector>(
        __builtin_convertvector(bits, WideVector) << 16);
  } else {
    return *reinterpret_cast<const typename Block<Method>::Loose*>(c);
  }
}

template <class Method, class C>
void store_result(const typename Block<Method>::Vector& sum, C* c) {
  if constexpr (std::is_same_v<C, Bf16>) {
    const WideVector upper = round_to_upper(reinterpret_cast<WideVector>(sum));
    *reinterpret_cast<LooseHalves*>(c) = __builtin_convertvector(upper, HalfVector);
  } else {
    *reinterpret_cast<typename Block<Method>::Loose*>(c) = sum;
  }
}

/// \brief A row of b in a register: kLanes elements of its strip.
template <class Element>
struct Lanes {
  using Vector [[gnu::vector_size(kVectorBytes), gnu::may_alias]] = Element;
  static Vector broadcast(Element element) {
    return element - Vector{};  // x - 0 is x for every x: a plain broadcast
  }
  static void add_product(const Vector& a, const Vector& b, Vector& sum) { sum += a * b; }
};

#if defined(__AVX512BF16__)
template <>
struct Lanes<Bf16Pair> {
  using Vector [[gnu::vector_size(kVectorBytes), gnu::may_alias]] = std::uint32_t;
  using Sum [[gnu::vector_size(kVectorBytes)]] = float;
  static Vector broadcast(Bf16Pair pair) { return Vector{} + pair.bits; }
  static void add_product(const Vector& a, const Vector& b, Sum& sum) {
    sum = reinterpret_cast<Sum>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),
                                                 reinterpret_cast<__m512bh>(a),
                                                 reinterpret_cast<__m512bh>(b)));
  }
};
#endif

/// \brief c[height, kColumns] = alpha a b + beta c from packed strips of k elements.
/// \tparam Rows  rows of a's strip that are multiplied, at least height
template <class Method, class C, int Rows>
[[gnu::noinline]] void multiply_strips(std::int64_t k,
                                       const typename Method::Element* __restrict__ a,
                                       const typename Method::Element* __restrict__ b,
                                       typename Method::Sum alpha,
                                       typename Method::Sum beta, C* __restrict__ c,
                                       std::int64_t c_stride, std::int64_t height,
                                       Ahead& ahead) {
  using Sum = typename Method::Sum;
  using Vector = typename Block<Method>::Vector;
  using Row = Lanes<typename Method::Element>;
  constexpr int kLanes = Block<Method>::kLanes;
  Vector sum[Rows][2];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    sum[i][0] = Vector{};
    sum[i][1] = Vector{};
    // The tile of c is wanted at the end only.
    __builtin_prefetch(c + i * c_stride, 1);
    __builtin_prefetch(c + i * c_stride + 2 * kLanes - 1, 1);
  }
  const auto add_products = [&] {
    auto b0 = *reinterpret_cast<const typename Row::Vector*>(b);
    auto b1 = *reinterpret_cast<const typename Row::Vector*>(b + kLanes);
    // Nothing but a hint: both stay in registers instead of being read again for every
    // row.
    asm("" : "+v"(b0), "+v"(b1));
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const auto element = Row::broadcast(a[i]);
      Row::add_product(element, b0, sum[i][0]);
      Row::add_product(element, b1, sum[i][1]);
    }
    a += kRows;
    b += 2 * kLanes;
  };
  std::int64_t p = 0;
  // The end of the walk is met at a multiple of its steps; what follows fetches nothing.
  for (; p + Ahead::kSteps <= k && !ahead.done(); p += Ahead::kSteps) {
    auto [wanted, step] = ahead.next();
#pragma GCC unroll 4
    for (std::int64_t q = 0; q < Ahead::kSteps; ++q) {
      __builtin_prefetch(wanted, 0, 2);  // not into the first-level cache
      wanted += step;
      add_products();
    }
  }
#pragma GCC unroll 4
  for (; p < k; ++p) add_products();
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    if (i == height) return;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      C* const result = c + i * c_stride + half * kLanes;
      Vector value = alpha * sum[i][half];
      // Where beta is 0, c may hold NaN.
      if (beta != Sum(0)) value += beta * load_result<Method>(result);
      store_result<Method>(value, result);
    }
  }
}

/// \brief multiply_strips over the rows that there are, in thirds of a strip: experts have
/// few rows, and the last strip of each is cut anywhere.
template <class Method, class C>
void multiply_rows(std::int64_t k, const typename Method::Element* a,
                   const typename Method::Element* b, typename Method::Sum alpha,
                   typename Method::Sum beta, C* c, std::int64_t c_stride,
                   std::int64_t height, Ahead& ahead) {
  constexpr int kThird = kRows / 3;
  if (height > 2 * kThird) {
    multiply_strips<Method, C, kRows>(k, a, b, alpha, beta, c, c_stride, height, ahead);
  } else if (height > kThird) {
    multiply_strips<Method, C, 2 * kThird>(k, a, b, alpha, beta, c, c_stride, height,
                                           ahead);
  } else {
    multiply_strips<Method, C, kThird>(k, a, b, alpha, beta, c, c_stride, height, ahead);
  }
}

/// \brief multiply_rows for a tile that the last column of c cuts.
template <class Method, class C>
void multiply_border(std::int64_t k, const typename Method::Element* a,
                     const typename Method::Element* b, typename Method::Sum alpha,
                     typename Method::Sum beta, C* c, std::int64_t c_stride,
                     std::int64_t height, std::int64_t width, Ahead& ahead) {
  using Sum = typename Method::Sum;
  constexpr int kColumns = Block<Method>::kColumns;
  alignas(64) Sum tile[kRows * kColumns];
  multiply_rows<Method, Sum>(k, a, b, alpha, Sum(0), tile, kColumns, height, ahead);
  for (std::int64_t i = 0; i < height; ++i) {
    for (std::int64_t j = 0; j < width; ++j) {
      C& result = c[i * c_stride + j];
      result = C(tile[i * kColumns + j] + (beta == Sum(0) ? Sum(0) : beta * Sum(result)));
    }
  }
}

/// \brief All tiles of a packed block of a times a packed block of b.
/// \param k  elements along the inner dimension
template <class Method, class C>
void multiply_blocks(std::int64_t rows, std::int64_t columns, std::int64_t k,
                     const typename Method::Element* a, const typename Method::Element* b,
                     typename Method::Sum alpha, typename Method::Sum beta, C* c,
                     std::int64_t c_stride, Ahead& ahead) {
  constexpr int kColumns = Block<Method>::kColumns;
  for (std::int64_t j = 0; j < columns; j += kColumns) {
    const std::int64_t width = std::min<std::int64_t>(kColumns, columns - j);
    for (std::int64_t i = 0; i < rows; i += kRows) {
      const std::int64_t height = std::min<std::int64_t>(kRows, rows - i);
      C* const tile = c + i * c_stride + j;
      if (width == kColumns) {
        multiply_rows<Method, C>(k, a + i * k, b + j * k, alpha, beta, tile, c_stride,
                                 height, ahead);
      } else {
        multiply_border<Method, C>(k, a + i * k, b + j * k, alpha, beta, tile, c_stride,
                                   height, width, ahead);
      }
    }
  }
}

/// \brief `total` in the fewest equal blocks of at most `limit`, each a multiple of
/// `unit`.
inline std::int64_t even_block(std::int64_t total, std::int64_t limit,
                               std::int64_t unit) {
  const std::int64_t blocks = (total + limit - 1) / limit;
  const std::int64_t size = (total + blocks - 1) / blocks;
  return std::min(limit, (size + unit - 1) / unit * unit);
}

/// \brief The blocks of a product. For each block (j, p) of b, all blocks (i, p) of a;
/// the first of them meets b piece by piece, as it is packed.
template <class A, class B, class C>
struct Blocking {
  using Method = MethodOf<A, B, C>;
  using Element = typename Method::Element;
  static constexpr int kColumns = Block<Method>::kColumns;
  static constexpr std::int64_t kPiece = 4 * kColumns;

  const HostProduct<A, B, C>& product;
  std::int64_t rows, columns, inner;  ///< of a block, at most

  explicit Blocking(const HostProduct<A, B, C>& whole)
      : product(whole),
        rows(even_block(whole.m, Block<Method>::kBlockRows, kRows)),
        columns(even_block(whole.n, Block<Method>::kBlockColumns, kColumns)),
        inner(even_block(whole.k, Block<Method>::kInner * kNumbers<Element>, 8)) {}

  std::int64_t height(std::int64_t i) const { return std::min(rows, product.m - i); }
  std::int64_t width(std::int64_t j) const { return std::min(columns, product.n - j); }
  std::int64_t depth(std::int64_t p) const { return std::min(inner, product.k - p); }
  /// \brief Columns of the piece that begins at column s of block j.
  std::int64_t piece(std::int64_t j, std::int64_t s) const {
    return std::min(kPiece, width(j) - s);
  }

  Operand<A> a(std::int64_t i, std::int64_t p) const {
    const bool transposed = product.transpose_a == Transpose::kYes;
    const Operand<A> all{product.a, transposed ? 1 : product.a_stride,
                         transposed ? product.a_stride : 1};
    return {all.at(i, p), all.strip_step, all.inner_step};
  }
  Operand<B> b(std::int64_t j, std::int64_t p) const {
    const bool transposed = product.transpose_b == Transpose::kYes;
    const Operand<B> all{product.b, transposed ? product.b_stride : 1,
                         transposed ? 1 : product.b_stride};
    return {all.at(j, p), all.strip_step, all.inner_step};
  }

  Ahead fetch_a(std::int64_t i, std::int64_t p, std::int64_t looks) const {
    return fetch_ahead(a(i, p), height(i), depth(p), looks);
  }
  Ahead fetch_b(std::int64_t j, std::int64_t p, std::int64_t s, std::int64_t looks) const {
    return fetch_ahead(b(j + s, p), piece(j, s), depth(p), looks);
  }
};

/// \brief Where a product stands: at piece s of block (j, p) of b, with block i of a.
struct Position {
  std::int64_t j, p, i, s;
};

/// \brief What to fetch while the piece at `at` is multiplied: the piece after it where b
/// is being packed, and with the last pieces what the next block begins with.
/// \param following  the product that this thread will probably turn to next, or null
template <class A, class B, class C>
Ahead wanted_at(const Position& at, const Blocking<A, B, C>& now,
                const Blocking<A, B, C>* following) {
  using Blocks = Blocking<A, B, C>;
  constexpr std::int64_t kTiles = Blocks::kPiece / Blocks::kColumns;
  const std::int64_t elements = elements_of<typename Blocks::Element>(now.depth(at.p));
  const std::int64_t looks =
      (now.height(at.i) + kRows - 1) / kRows * kTiles * (elements / Ahead::kSteps);
  const std::int64_t left = now.width(at.j) - at.s;  // columns
  const bool last = left <= Blocks::kPiece;
  if (!last && at.i == 0) return now.fetch_b(at.j, at.p, at.s + Blocks::kPiece, looks);
  if (left > 2 * Blocks::kPiece) return Ahead();
  if (at.i + now.rows < now.product.m) {
    return last ? now.fetch_a(at.i + now.rows, at.p, looks) : Ahead();
  }
  const auto first_of = [&](const Blocks& blocks, std::int64_t j, std::int64_t p) {
    return last ? blocks.fetch_a(0, p, looks) : blocks.fetch_b(j, p, 0, looks);
  };
  if (at.p + now.inner < now.product.k) return first_of(now, at.j, at.p + now.inner);
  if (at.j + now.columns < now.product.n) return first_of(now, at.j + now.columns, 0);
  return following != nullptr ? first_of(*following, 0, 0) : Ahead();
}

/// \brief One block of a, packed, times one of b; the first block of a packs b.
template <class A, class B, class C>
void multiply_block_row(Position at, const Blocking<A, B, C>& blocks,
                        const Blocking<A, B, C>* following,
                        Workspace<MethodOf<A, B, C>>& workspace) {
  using Blocks = Blocking<A, B, C>;
  using Method = typename Blocks::Method;
  using Sum = typename Method::Sum;
  const HostProduct<A, B, C>& product = blocks.product;
  const std::int64_t depth = blocks.depth(at.p);
  const std::int64_t elements = elements_of<typename Blocks::Element>(depth);
  const Sum beta = at.p == 0 ? product.beta : Sum(1);
  for (at.s = 0; at.s < blocks.width(at.j); at.s += Blocks::kPiece) {
    const std::int64_t columns = blocks.piece(at.j, at.s);
    typename Blocks::Element* const b = workspace.b() + at.s * elements;
    if (at.i == 0) pack<Blocks::kColumns>(blocks.b(at.j + at.s, at.p), columns, depth, b);
    Ahead ahead = wanted_at(at, blocks, following);
    multiply_blocks<Method, C>(blocks.height(at.i), columns, elements, workspace.a(), b,
                               product.alpha, beta,
                               product.c + at.i * product.c_stride + at.j + at.s,
                               product.c_stride, ahead);
  }
}

/// \brief The product block by block; m, n and k are positive. c receives one block of
/// the inner dimension after the other.
template <class A, class B, class C>
void multiply_in_place(const HostProduct<A, B, C>& product,
                       const Blocking<A, B, C>* following,
                       Workspace<MethodOf<A, B, C>>& workspace) {
  const Blocking<A, B, C> blocks(product);
  for (std::int64_t j = 0; j < product.n; j += blocks.columns) {
    for (std::int64_t p = 0; p < product.k; p += blocks.inner) {
      for (std::int64_t i = 0; i < product.m; i += blocks.rows) {
        pack<kRows>(blocks.a(i, p), blocks.height(i), blocks.depth(p), workspace.a());
        multiply_block_row(Position{j, p, i, 0}, blocks, following, workspace);
      }
    }
  }
}

/// \brief The product in panels that are summed over the whole inner dimension and then
/// rounded once.
template <class A, class B, class C>
void multiply_in_panels(const HostProduct<A, B, C>& product,
                        Workspace<MethodOf<A, B, C>>& workspace) {
  using Method = MethodOf<A, B, C>;
  using T = typename Method::Sum;
  constexpr std::int64_t kPanelRows = 8 * Block<Method>::kBlockRows;
  constexpr std::int64_t kPanelColumns = Block<Method>::kBlockColumns;
  for (std::int64_t i = 0; i < product.m; i += kPanelRows) {
    for (std::int64_t j = 0; j < product.n; j += kPanelColumns) {
      HostProduct<A, B, T> panel;
      panel.m = std::min(kPanelRows, product.m - i);
      panel.n = std::min(kPanelColumns, product.n - j);
      panel.k = product.k;
      panel.transpose_a = product.transpose_a;
      panel.transpose_b = product.transpose_b;
      panel.alpha = product.alpha;
      panel.a =
          product.a + (panel.transpose_a == Transpose::kYes ? i : i * product.a_stride);
      panel.a_stride = product.a_stride;
      panel.b =
          product.b + (panel.transpose_b == Transpose::kYes ? j * product.b_stride : j);
      panel.b_stride = product.b_stride;
      panel.c = workspace.c(panel.m * panel.n);
      panel.c_stride = panel.n;
      multiply_in_place<A, B, T>(panel, nullptr, workspace);
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
/// \param following  the product that the thread will probably turn to next, or null: its
/// operands are fetched meanwhile; m and n are positive
template <class A, class B, class C>
void multiply(const HostProduct<A, B, C>& product,
              Workspace<MethodOf<A, B, C>>& workspace,
              const HostProduct<A, B, C>* following = nullptr) {
  using Method = MethodOf<A, B, C>;
  constexpr std::int64_t kOnce =
      Block<Method>::kInner * kNumbers<typename Method::Element>;
  if (!std::is_same_v<C, typename Method::Sum> && product.k > kOnce) {
    multiply_in_panels(product, workspace);
  } else if (following != nullptr && following->k > 0) {
    const Blocking<A, B, C> next(*following);
    multiply_in_place(product, &next, workspace);
  } else {
    multiply_in_place<A, B, C>(product, nullptr, workspace);
  }
}

}  // namespace pleat::kernels::packed

#endif
