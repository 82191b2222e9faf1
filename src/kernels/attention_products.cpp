// SPDX-License-Identifier: Apache-2.0
//
// A block holds C queries of one sequence and the K keys that the last of them sees, with
// all heads. Its scores are formed, used and forgotten, so the memory is bounded whatever
// the length of the sequence.
//
// Legend: as attention.hpp; C queries of a block, K keys that they see, W = 2 G d columns
// of keys and values, J = H / G query heads of a key head.
#include "attention_products.hpp"

#include "gemm_cublaslt.hpp"

#if defined(PLEAT_CUBLASLT_GEMM)

#include <algorithm>
#include <type_traits>

#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "rows.hpp"

namespace pleat::kernels {
namespace {

using detail::Index;
using detail::RowTeam;

/// Of the scores of a block. In tests little, so that sequences have several blocks.
#if defined(PLEAT_CUBLASLT_STAND_IN)
constexpr Index kScoreBytes = Index{32} << 10;
#else
constexpr Index kScoreBytes = Index{256} << 20;
#endif
/// Fewer would leave the products too thin.
constexpr Index kLeastRows = 16;
/// What the products' rows of scores are aligned to, in elements.
constexpr Index kPadding = 8;

template <class T>
inline constexpr bool kNarrow = !std::is_same_v<T, Accumulator<T>>;

struct Block {
  Index first_query;   ///< in its sequence
  Index rows, keys;    ///< C, K
  Index q_row, k_row;  ///< where they begin in the arrays
  Index stride;        ///< elements of a row of scores
};

/// Queries of a block: as many as fit, in whole tiles.
Index block_rows(const AttentionShape& shape, Index score_bytes) {
  constexpr Index kTile = 64;
  const Index fitting =
      kScoreBytes / std::max<Index>(shape.heads * shape.keys * score_bytes, 1);
  return std::max(fitting >= kTile ? fitting / kTile * kTile : fitting, kLeastRows);
}

/// Calls body(block) for the blocks of sequence b.
template <class Body>
void for_each_block(const AttentionShape& shape, Index b, Index rows, const Body& body) {
  for (Index first = 0; first < shape.queries; first += rows) {
    const Index count = std::min(rows, shape.queries - first);
    const Index keys = std::min(shape.keys, first + count + shape.diagonal);
    body(Block{.first_query = first,
               .rows = count,
               .keys = keys,
               .q_row = shape.first_query + b * shape.query_stride + first,
               .k_row = shape.first_key + b * shape.key_stride,
               .stride = (keys + kPadding - 1) / kPadding * kPadding});
  }
}

Index score_count(const AttentionShape& shape, Index rows) {
  const Index keys = (shape.keys + kPadding - 1) / kPadding * kPadding;
  return shape.heads * std::min(rows, shape.queries) * keys;
}

/// A matrix of each key head: of query head `j` of its group, or of the key head itself.
template <class T>
struct Operand {
  T* first;
  Index stride;  ///< from row to row
  Index step;    ///< from key head to key head
};

template <class View>
Operand<typename View::value_type> query_heads(const AttentionShape& shape,
                                               const View& x_TQ, Index row, Index j) {
  const auto stride = static_cast<Index>(x_TQ.stride(0));
  return {x_TQ.data() + row * stride + j * shape.head_dim, stride,
          shape.heads / shape.kv_heads * shape.head_dim};
}

template <class View>
Operand<typename View::value_type> key_heads(const AttentionShape& shape,
                                             const View& x_UR, Index row, Index column) {
  const auto stride = static_cast<Index>(x_UR.stride(0));
  return {x_UR.data() + row * stride + column, stride, shape.head_dim};
}

/// The scores of the j-th query heads, or what replaces them: x_HCK.
template <class T>
Operand<T> score_heads(const AttentionShape& shape, const Block& block, T* x_HCK,
                       Index j) {
  const Index head = block.rows * block.stride;
  return {x_HCK + j * head, block.stride, shape.heads / shape.kv_heads * head};
}

/// c = alpha op(a) op(b) + beta c for each key head; m, n, k are the extents of one
/// product.
template <class T, class C>
void multiply(const ExecSpace& exec, Index heads, Index m, Index n, Index k,
              Transpose transpose_a, Transpose transpose_b, Accumulator<T> alpha,
              const Operand<const T>& a, const Operand<const T>& b, Accumulator<T> beta,
              const Operand<C>& c) {
  cublaslt_gemm_batch<T, C>(exec, {.first = {.m = m,
                                             .n = n,
                                             .k = k,
                                             .transpose_a = transpose_a,
                                             .transpose_b = transpose_b,
                                             .alpha = alpha,
                                             .a = a.first,
                                             .a_stride = a.stride,
                                             .b = b.first,
                                             .b_stride = b.stride,
                                             .beta = beta,
                                             .c = c.first,
                                             .c_stride = c.stride},
                                   .count = heads,
                                   .a_step = a.step,
                                   .b_step = b.step,
                                   .c_step = c.step});
}

template <class T>
Operand<const T> as_input(const Operand<T>& x) {
  return {x.first, x.stride, x.step};
}

/// x_HCK = alpha a b^T, where a has the rows of the queries and b those of the keys.
template <class T>
void multiply_queries_keys(const ExecSpace& exec, const AttentionShape& shape,
                           const Block& block, Accumulator<T> alpha,
                           const DeviceView<const T, 2>& a_TQ,
                           const DeviceView<const T, 2>& b_UR, Index column,
                           Accumulator<T>* x_HCK) {
  for (Index j = 0; j < shape.heads / shape.kv_heads; ++j) {
    multiply<T, Accumulator<T>>(exec, shape.kv_heads, block.rows, block.keys,
                                shape.head_dim, Transpose::kNo, Transpose::kYes, alpha,
                                query_heads(shape, a_TQ, block.q_row, j),
                                key_heads(shape, b_UR, block.k_row, column), 0,
                                score_heads(shape, block, x_HCK, j));
  }
}

/// c_TQ = x_HCK b: the queries' rows from the keys'.
template <class T>
void multiply_scores_keys(const ExecSpace& exec, const AttentionShape& shape,
                          const Block& block, T* x_HCK,
                          const DeviceView<const T, 2>& b_UR, Index column,
                          const DeviceView<T, 2>& c_TQ) {
  for (Index j = 0; j < shape.heads / shape.kv_heads; ++j) {
    multiply<T, T>(exec, shape.kv_heads, block.rows, shape.head_dim, block.keys,
                   Transpose::kNo, Transpose::kNo, 1,
                   as_input(score_heads(shape, block, x_HCK, j)),
                   key_heads(shape, b_UR, block.k_row, column), 0,
                   query_heads(shape, c_TQ, block.q_row, j));
  }
}

/// sum_KW += x_HCK^T a: the keys' rows from the queries'; the query heads of a group add
/// up.
template <class T>
void add_scores_queries(const ExecSpace& exec, const AttentionShape& shape,
                        const Block& block, T* x_HCK, const DeviceView<const T, 2>& a_TQ,
                        const DeviceView<Accumulator<T>, 2>& sum_KW, Index column) {
  for (Index j = 0; j < shape.heads / shape.kv_heads; ++j) {
    multiply<T, Accumulator<T>>(
        exec, shape.kv_heads, block.keys, shape.head_dim, block.rows, Transpose::kYes,
        Transpose::kNo, 1, as_input(score_heads(shape, block, x_HCK, j)),
        query_heads(shape, a_TQ, block.q_row, j), 1, key_heads(shape, sum_KW, 0, column));
  }
}

/// p_HCK = softmax(s_HCK) over the keys that each query sees; lse. p may be s.
template <class T>
void form_probabilities(const ExecSpace& exec, const AttentionShape& shape,
                        const Block& block, const Accumulator<T>* s_HCK, T* p_HCK,
                        const DeviceView<Accumulator<T>, 2>& lse_HT) {
  using A = Accumulator<T>;
  const Index rows = block.rows, keys = block.keys, stride = block.stride;
  const Index q_row = block.q_row;
  const Index sees =
      block.first_query + shape.diagonal + 1;  // the first query of the block
  detail::for_each_row(
      "pleat::kernels::attention_probabilities", exec, shape.heads * rows, keys,
      KOKKOS_LAMBDA(const RowTeam& team, Index r) {
        const A* s = s_HCK + r * stride;
        T* p = p_HCK + r * stride;
        const Index visible = Kokkos::min(keys, sees + r % rows);
        constexpr A kLowest = Kokkos::Experimental::finite_min_v<A>;
        const A highest =
            team.template maximum<A>(visible, kLowest, [&](Index k) { return s[k]; });
        const A sum = team.template sum<A>(
            visible, [&](Index k) { return Kokkos::exp(s[k] - highest); });
        team.for_each(keys, [&](Index k) {
          p[k] = k < visible ? T(Kokkos::exp(s[k] - highest) / sum) : T(0);
        });
        team.once(
            [&] { lse_HT(r / rows, q_row + r % rows) = highest + Kokkos::log(sum); });
      });
}

/// p_HCK = exp(s_HCK - lse), ds_HCK = scale p (dp_HCK - delta). p may be s, ds may be dp.
template <class T>
void form_score_gradients(const ExecSpace& exec, const AttentionShape& shape,
                          const Block& block, Accumulator<T> scale,
                          const Accumulator<T>* s_HCK, const Accumulator<T>* dp_HCK,
                          const DeviceView<const Accumulator<T>, 2>& lse_HT,
                          const DeviceView<const Accumulator<T>, 2>& delta_HT, T* p_HCK,
                          T* ds_HCK) {
  using A = Accumulator<T>;
  const Index rows = block.rows, keys = block.keys, stride = block.stride;
  const Index q_row = block.q_row;
  const Index sees = block.first_query + shape.diagonal + 1;
  detail::for_each_row(
      "pleat::kernels::attention_score_gradients", exec, shape.heads * rows, keys,
      KOKKOS_LAMBDA(const RowTeam& team, Index r) {
        const Index begin = r * stride;
        const Index visible = Kokkos::min(keys, sees + r % rows);
        const A lse = lse_HT(r / rows, q_row + r % rows);
        const A delta = delta_HT(r / rows, q_row + r % rows);
        team.for_each(keys, [&](Index k) {
          const A p = k < visible ? Kokkos::exp(s_HCK[begin + k] - lse) : A(0);
          const A ds = k < visible ? scale * p * (dp_HCK[begin + k] - delta) : A(0);
          p_HCK[begin + k] = T(p);
          ds_HCK[begin + k] = T(ds);
        });
      });
}

/// The rows of a sequence in dkv_UR from their sums, keys in the first half of the
/// columns.
template <class T>
void write_key_gradients(const ExecSpace& exec, const AttentionShape& shape, Index k_row,
                         const DeviceView<Accumulator<T>, 2>& sum_KW,
                         const DeviceView<T, 2>& dkv_UR) {
  const Index half = shape.kv_heads * shape.head_dim;
  const Index k_column = shape.k_column, v_column = shape.v_column;
  detail::for_each_row(
      "pleat::kernels::attention_key_gradients", exec, shape.keys, half,
      KOKKOS_LAMBDA(const RowTeam& team, Index r) {
        const Accumulator<T>* sum = &sum_KW(r, 0);
        T* dk = &dkv_UR(k_row + r, k_column);
        T* dv = &dkv_UR(k_row + r, v_column);
        team.for_each(half, [&](Index i) {
          dk[i] = T(sum[i]);
          dv[i] = T(sum[half + i]);
        });
      });
}

/// Scores in the accumulator, and what is multiplied next: other memory where T is
/// narrower.
template <class T>
struct Scores {
  using A = Accumulator<T>;
  A* wide = nullptr;
  T* narrow = nullptr;

  Scores(Arena& scratch, Index count) : wide(scratch.take<A>(count).data()) {
    if constexpr (kNarrow<T>) {
      narrow = scratch.take<T>(count).data();
    } else {
      narrow = wide;
    }
  }
};

}  // namespace

template <class T>
void products_attention_forward(const ExecSpace& exec, const AttentionShape& shape,
                                Accumulator<T> scale, const DeviceView<const T, 2>& q_TQ,
                                const DeviceView<const T, 2>& kv_UR, Arena& scratch,
                                const DeviceView<T, 2>& o_TO,
                                const DeviceView<Accumulator<T>, 2>& lse_HT) {
  const ArenaScope scope(scratch);
  const Index rows = block_rows(shape, sizeof(Accumulator<T>));
  const Scores<T> scores(scratch, score_count(shape, rows));
  for (Index b = 0; b < shape.batch; ++b) {
    for_each_block(shape, b, rows, [&](const Block& block) {
      multiply_queries_keys<T>(exec, shape, block, scale, q_TQ, kv_UR, shape.k_column,
                               scores.wide);
      form_probabilities<T>(exec, shape, block, scores.wide, scores.narrow, lse_HT);
      multiply_scores_keys<T>(exec, shape, block, scores.narrow, kv_UR, shape.v_column,
                              o_TO);
    });
  }
}

template <class T>
void products_attention_backward(const ExecSpace& exec, const AttentionShape& shape,
                                 Accumulator<T> scale, const DeviceView<const T, 2>& q_TQ,
                                 const DeviceView<const T, 2>& kv_UR,
                                 const DeviceView<const Accumulator<T>, 2>& lse_HT,
                                 const DeviceView<const Accumulator<T>, 2>& delta_HT,
                                 const DeviceView<const T, 2>& do_TO, Arena& scratch,
                                 const DeviceView<T, 2>& dq_TQ,
                                 const DeviceView<T, 2>& dkv_UR) {
  const ArenaScope scope(scratch);
  const Index rows = block_rows(shape, 2 * sizeof(Accumulator<T>));
  const Scores<T> scores(scratch, score_count(shape, rows));
  const Scores<T> gradients(scratch, score_count(shape, rows));
  const Index half = shape.kv_heads * shape.head_dim;
  const auto sum_KW = scratch.take<Accumulator<T>>(shape.keys, 2 * half);
  for (Index b = 0; b < shape.batch; ++b) {
    fill_tensor(exec, sum_KW, Accumulator<T>(0));
    for_each_block(shape, b, rows, [&](const Block& block) {
      multiply_queries_keys<T>(exec, shape, block, scale, q_TQ, kv_UR, shape.k_column,
                               scores.wide);
      multiply_queries_keys<T>(exec, shape, block, 1, do_TO, kv_UR, shape.v_column,
                               gradients.wide);
      form_score_gradients<T>(exec, shape, block, scale, scores.wide, gradients.wide,
                              lse_HT, delta_HT, scores.narrow, gradients.narrow);
      add_scores_queries<T>(exec, shape, block, scores.narrow, do_TO, sum_KW, half);
      add_scores_queries<T>(exec, shape, block, gradients.narrow, q_TQ, sum_KW, 0);
      multiply_scores_keys<T>(exec, shape, block, gradients.narrow, kv_UR, shape.k_column,
                              dq_TQ);
    });
    write_key_gradients<T>(exec, shape, shape.first_key + b * shape.key_stride, sum_KW,
                           dkv_UR);
  }
}

#define PLEAT_INSTANTIATE(T)                                                             \
  template void products_attention_forward<T>(                                           \
      const ExecSpace&, const AttentionShape&, Accumulator<T>,                           \
      const DeviceView<const T, 2>&, const DeviceView<const T, 2>&, Arena&,              \
      const DeviceView<T, 2>&, const DeviceView<Accumulator<T>, 2>&);                    \
  template void products_attention_backward<T>(                                          \
      const ExecSpace&, const AttentionShape&, Accumulator<T>,                           \
      const DeviceView<const T, 2>&, const DeviceView<const T, 2>&,                      \
      const DeviceView<const Accumulator<T>, 2>&,                                        \
      const DeviceView<const Accumulator<T>, 2>&, const DeviceView<const T, 2>&, Arena&, \
      const DeviceView<T, 2>&, const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels

#endif
