// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the forward and the backward pass on a CPU share: spans of rows, tasks,
/// and products between tiles. Only where PLEAT_HOST_GEMM is defined.

#include <algorithm>
#include <type_traits>

#include "attention_host.hpp"
#include "gemm_host.hpp"

namespace pleat::kernels {

/// Queries of a tile, and keys of a chunk that one product takes. The sizes are multiples of the
/// strips of a packed product (12 and 32, or 6 and 16), so that no strip is cut.
struct TileSize {
  std::int64_t queries;
  std::int64_t keys;
};

inline constexpr std::int64_t kMostQueries = 192;

/// For short sequences small enough that the masked half of the diagonal costs little; for long
/// ones as large as a cache of 1 MiB holds, since every tile packs the keys anew.
template <class A>
TileSize tile_size(const AttentionShape& shape) {
  constexpr std::int64_t kLong = 4096;
  if (shape.queries < kLong) return {96, 192};
  return {kMostQueries, 1536 / static_cast<std::int64_t>(sizeof(A))};
}

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// A run of consecutive queries or keys of one sequence.
struct Span {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::int64_t end() const { return begin + size; }
};

/// Hands tasks out one by one; body(task, slot) has slot `slot` of per-thread memory to
/// itself.
template <class Body>
void for_each_task(const ExecSpace& exec, const char* label, std::int64_t tasks,
                   const Body& body) {
  using Schedule = Kokkos::Schedule<Kokkos::Dynamic>;
  const Kokkos::Experimental::UniqueToken<ExecSpace> slots(exec);
  Kokkos::parallel_for(
      label,
      Kokkos::RangePolicy<ExecSpace, Schedule>(exec, 0, tasks, Kokkos::ChunkSize(1)),
      [&, slots](const std::int64_t task) {
        const auto slot = slots.acquire();
        body(task, slot);
        slots.release(slot);
      });
}

inline std::int64_t slot_count(const ExecSpace& exec) {
  return Kokkos::Experimental::UniqueToken<ExecSpace>(exec).size();
}

/// Rows of one head that products add to: those of the array, or, where it would round every
/// sum, rows of the accumulator beside it.
template <class T>
class SumRows {
 public:
  using A = Accumulator<T>;
  static constexpr bool kBeside = !std::is_same_v<A, T>;

  /// \param beside  [count, dim]; not used where the array itself holds the sums
  SumRows(T* array, std::int64_t stride, std::int64_t count, std::int64_t dim, A* beside)
      : array_(array), array_stride_(stride), count_(count), dim_(dim), beside_(beside) {}

  A* data() const {
    if constexpr (kBeside) {
      return beside_;
    } else {
      return array_;
    }
  }
  std::int64_t stride() const { return kBeside ? dim_ : array_stride_; }
  A* row(std::int64_t index) const { return data() + index * stride(); }

  void clear() const {
    for (std::int64_t r = 0; r < count_; ++r) std::fill_n(row(r), dim_, A(0));
  }
  /// Goes on from what the array holds.
  void load() const {
    if constexpr (kBeside) {
      for (std::int64_t r = 0; r < count_; ++r) {
        const T* const from = array_ + r * array_stride_;
        std::transform(from, from + dim_, row(r), [](T x) { return static_cast<A>(x); });
      }
    }
  }
  /// The sums are complete.
  void store() const {
    if constexpr (kBeside) {
      for (std::int64_t r = 0; r < count_; ++r) {
        std::transform(row(r), row(r) + dim_, array_ + r * array_stride_,
                       [](A x) { return static_cast<T>(x); });
      }
    }
  }

 private:
  T* array_;
  std::int64_t array_stride_;
  std::int64_t count_;
  std::int64_t dim_;
  A* beside_;
};

/// Where a head's rows lie, and products between tiles of them.
template <class T>
struct HostTiles {
  using A = Accumulator<T>;
  AttentionShape shape;
  Accumulator<T> scale;
  DeviceView<const T, 2> q_TQ;
  DeviceView<const T, 2> kv_UR;
  TileSize size = tile_size<A>(shape);

  std::int64_t dim() const { return shape.head_dim; }
  std::int64_t group_size() const { return shape.heads / shape.kv_heads; }
  std::int64_t q_tiles() const { return divide_up(shape.queries, size.queries); }
  Span q_tile(std::int64_t index) const { return tile(index, shape.queries); }
  std::int64_t k_tiles() const { return divide_up(shape.keys, size.queries); }
  Span k_tile(std::int64_t index) const { return tile(index, shape.keys); }
  Span tile(std::int64_t index, std::int64_t rows) const {
    const std::int64_t begin = index * size.queries;
    return {begin, std::min(size.queries, rows - begin)};
  }

  /// How many of the keys, from the first of the span, a query sees.
  std::int64_t visible_keys(std::int64_t query, const Span& keys) const {
    return std::clamp<std::int64_t>(query + shape.diagonal + 1 - keys.begin, 0,
                                    keys.size);
  }
  /// The keys that any of the queries sees, in chunks that one product takes; body(keys).
  template <class Body>
  void for_each_chunk_of_keys(const Span& queries, const Body& body) const {
    const std::int64_t seen = visible_keys(queries.end() - 1, {0, shape.keys});
    for (std::int64_t begin = 0; begin < seen; begin += size.keys) {
      body(Span{begin, std::min(size.keys, seen - begin)});
    }
  }
  /// The queries that see any of the keys, in chunks that one product takes;
  /// body(queries).
  template <class Body>
  void for_each_chunk_of_queries(const Span& keys, const Body& body) const {
    std::int64_t begin = std::max<std::int64_t>(0, keys.begin - shape.diagonal);
    for (; begin < shape.queries; begin += size.keys) {
      body(Span{begin, std::min(size.keys, shape.queries - begin)});
    }
  }

  std::int64_t q_row(std::int64_t batch, std::int64_t query) const {
    return shape.first_query + batch * shape.query_stride + query;
  }
  std::int64_t k_row(std::int64_t batch, std::int64_t key) const {
    return shape.first_key + batch * shape.key_stride + key;
  }
  std::int64_t q_column(std::int64_t head) const { return head * dim(); }
  std::int64_t k_column(std::int64_t kv) const { return shape.k_column + kv * dim(); }
  std::int64_t v_column(std::int64_t kv) const { return shape.v_column + kv * dim(); }
  const T* q(std::int64_t row, std::int64_t head) const {
    return &q_TQ(row, q_column(head));
  }
  const T* k(std::int64_t row, std::int64_t kv) const {
    return &kv_UR(row, k_column(kv));
  }
  const T* v(std::int64_t row, std::int64_t kv) const {
    return &kv_UR(row, v_column(kv));
  }
  std::int64_t q_stride() const { return static_cast<std::int64_t>(q_TQ.stride(0)); }
  std::int64_t kv_stride() const { return static_cast<std::int64_t>(kv_UR.stride(0)); }

  /// s[q, k] = x[q, d] y[k, d]^T
  void scores(const Span& queries, const Span& keys, const T* x, std::int64_t x_stride,
              const T* y, std::int64_t y_stride, A* s_qk) const {
    host_gemm<T, T, A>({.m = queries.size,
                        .n = keys.size,
                        .k = dim(),
                        .transpose_b = Transpose::kYes,
                        .a = x,
                        .a_stride = x_stride,
                        .b = y,
                        .b_stride = y_stride,
                        .c = s_qk,
                        .c_stride = keys.size});
  }
  /// out[q, d] = w[q, k] x[k, d] + beta out
  void combine(const Span& queries, const Span& keys, const A* w_qk, const T* x,
               std::int64_t x_stride, A beta, const SumRows<T>& out) const {
    host_gemm<A, T, A>({.m = queries.size,
                        .n = dim(),
                        .k = keys.size,
                        .a = w_qk,
                        .a_stride = keys.size,
                        .b = x,
                        .b_stride = x_stride,
                        .beta = beta,
                        .c = out.data(),
                        .c_stride = out.stride()});
  }
  /// out[k, d] += w[q, k]^T x[q, d] for the keys from row `first` of out on
  void combine_transposed(const Span& queries, const Span& keys, const A* w_qk, const T* x,
                          std::int64_t x_stride, std::int64_t first,
                          const SumRows<T>& out) const {
    host_gemm<A, T, A>({.m = keys.size,
                        .n = dim(),
                        .k = queries.size,
                        .transpose_a = Transpose::kYes,
                        .a = w_qk,
                        .a_stride = keys.size,
                        .b = x,
                        .b_stride = x_stride,
                        .beta = A(1),
                        .c = out.row(first),
                        .c_stride = out.stride()});
  }
};

}  // namespace pleat::kernels
