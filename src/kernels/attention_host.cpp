// SPDX-License-Identifier: Apache-2.0
#include "attention_host.hpp"

#include "gemm_host.hpp"

#if defined(PLEAT_HOST_GEMM)

#include <algorithm>
#include <cmath>

#include "attention_portable.hpp"
#include "fast_math.hpp"

namespace pleat::kernels {
namespace {

// Queries of a tile, and keys of a chunk that one product takes: small enough that the masked
// half of the diagonal costs little and both tiles stay in a 512 KiB cache, large enough for
// the BLAS to run near its best.
constexpr std::int64_t kQueries = 64;
constexpr std::int64_t kKeys = 256;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// A run of consecutive positions of one sequence.
struct Span {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::int64_t end() const { return begin + size; }
};

/// How many of the keys, from the first, the query at `position` may see.
std::int64_t visible_keys(std::int64_t position, const Span& keys) {
  return std::clamp<std::int64_t>(position - keys.begin + 1, 0, keys.size);
}

/// Hands tasks out one by one; body(task, slot) has slot `slot` of per-thread memory to itself.
template <class Body>
void for_each_task(const ExecSpace& exec, const char* label, std::int64_t tasks,
                   const Body& body) {
  using Schedule = Kokkos::Schedule<Kokkos::Dynamic>;
  const Kokkos::Experimental::UniqueToken<ExecSpace> slots(exec);
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<ExecSpace, Schedule>(exec, 0, tasks, Kokkos::ChunkSize(1)),
      [&, slots](const std::int64_t task) {
        const auto slot = slots.acquire();
        body(task, slot);
        slots.release(slot);
      });
}

std::int64_t slot_count(const ExecSpace& exec) {
  return Kokkos::Experimental::UniqueToken<ExecSpace>(exec).size();
}

/// One row of scores becomes exp(scale s - highest), 0 beyond `visible`; returns the sum.
template <class A>
A exponentiate_row(A* row, std::int64_t visible, std::int64_t keys, A scale, A highest) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t k = 0; k < visible; ++k) {
    row[k] = detail::exponential(row[k] * scale - highest);
    sum += row[k];
  }
  std::fill(row + visible, row + keys, A(0));
  return sum;
}

template <class A>
A largest(const A* row, std::int64_t count) {
  A highest = -Kokkos::Experimental::infinity_v<A>;
#pragma omp simd reduction(max : highest)
  for (std::int64_t k = 0; k < count; ++k) highest = row[k] > highest ? row[k] : highest;
  return highest;
}

template <class A>
void scale_row(A* row, std::int64_t count, A factor) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) row[i] *= factor;
}

/// The running maximum and sum of the softmax rows of one query tile (Milakov and
/// Gimelshein, arXiv 1805.02867).
template <class A>
struct OnlineSoftmax {
  A highest[kQueries];
  A sum[kQueries];

  OnlineSoftmax() {
    std::fill(highest, highest + kQueries, -Kokkos::Experimental::infinity_v<A>);
    std::fill(sum, sum + kQueries, A(0));
  }

  /// Scores of the next keys become probabilities under the new maximum; what was summed
  /// into o under the old one shrinks.
  void absorb(A* s_qk, const Span& queries, const Span& keys, A scale, A* o_qd,
              std::int64_t o_stride, std::int64_t dim) {
    for (std::int64_t r = 0; r < queries.size; ++r) {
      A* const row = s_qk + r * keys.size;
      const std::int64_t visible = visible_keys(queries.begin + r, keys);
      const A now = std::max(highest[r], scale * largest(row, visible));
      const A shrink = std::exp(highest[r] - now);
      sum[r] = sum[r] * shrink + exponentiate_row(row, visible, keys.size, scale, now);
      // Nothing was summed before the first keys.
      if (keys.begin > 0 && shrink != A(1)) scale_row(o_qd + r * o_stride, dim, shrink);
      highest[r] = now;
    }
  }
};

/// Where a head's rows lie, and products between tiles of them.
template <class T>
struct HostTiles {
  AttentionShape shape;
  Accumulator<T> scale;
  const T* qkv;
  std::int64_t stride;  ///< of qkv rows

  std::int64_t dim() const { return shape.head_dim; }
  std::int64_t group_size() const { return shape.heads / shape.kv_heads; }
  std::int64_t q_tiles() const { return divide_up(shape.sequence, kQueries); }
  Span q_tile(std::int64_t index) const {
    return {index * kQueries, std::min(kQueries, shape.sequence - index * kQueries)};
  }
  std::int64_t row(std::int64_t batch, std::int64_t position) const {
    return batch * shape.sequence + position;
  }
  std::int64_t q_column(std::int64_t head) const { return head * dim(); }
  std::int64_t k_column(std::int64_t kv) const { return (shape.heads + kv) * dim(); }
  std::int64_t v_column(std::int64_t kv) const {
    return (shape.heads + shape.kv_heads + kv) * dim();
  }
  const T* at(std::int64_t row, std::int64_t column) const { return qkv + row * stride + column; }

  /// s[q, k] = x[q, d] y[k, d]^T
  void scores(const Span& queries, const Span& keys, const T* x, std::int64_t x_stride,
              const T* y, std::int64_t y_stride, T* s_qk) const {
    host_gemm<T>({.m = queries.size, .n = keys.size, .k = dim(), .transpose_b = Transpose::kYes,
                  .a = x, .a_stride = x_stride, .b = y, .b_stride = y_stride,
                  .c = s_qk, .c_stride = keys.size});
  }
  /// out[q, d] = w[q, k] x[k, d] + beta out
  void combine(const Span& queries, const Span& keys, const T* w_qk, const T* x,
               std::int64_t x_stride, T beta, T* out, std::int64_t out_stride) const {
    host_gemm<T>({.m = queries.size, .n = dim(), .k = keys.size, .a = w_qk,
                  .a_stride = keys.size, .b = x, .b_stride = x_stride, .beta = beta,
                  .c = out, .c_stride = out_stride});
  }
  /// out[k, d] += w[q, k]^T x[q, d]
  void combine_transposed(const Span& queries, const Span& keys, const T* w_qk, const T* x,
                          std::int64_t x_stride, T* out, std::int64_t out_stride) const {
    host_gemm<T>({.m = keys.size, .n = dim(), .k = queries.size,
                  .transpose_a = Transpose::kYes, .a = w_qk, .a_stride = keys.size, .b = x,
                  .b_stride = x_stride, .beta = T(1), .c = out, .c_stride = out_stride});
  }
};

template <class T>
HostTiles<T> make_host_tiles(const AttentionShape& shape, Accumulator<T> scale,
                             const DeviceView<const T, 2>& qkv_TQ) {
  return {shape, scale, qkv_TQ.data(), static_cast<std::int64_t>(qkv_TQ.stride(0))};
}

/// One query tile of one head.
template <class T>
void forward_tile(const HostTiles<T>& tiles, std::int64_t batch, std::int64_t head,
                  const Span& queries, T* s_qk, const DeviceView<T, 2>& o_TO,
                  const DeviceView<Accumulator<T>, 2>& lse_HT) {
  const std::int64_t kv = head / tiles.group_size();
  const std::int64_t first = tiles.row(batch, queries.begin);
  const auto o_stride = static_cast<std::int64_t>(o_TO.stride(0));
  T* const o = &o_TO(first, tiles.q_column(head));
  OnlineSoftmax<Accumulator<T>> softmax;
  for (std::int64_t begin = 0; begin < queries.end(); begin += kKeys) {
    const Span keys{begin, std::min(kKeys, queries.end() - begin)};
    const std::int64_t key_row = tiles.row(batch, begin);
    tiles.scores(queries, keys, tiles.at(first, tiles.q_column(head)), tiles.stride,
                 tiles.at(key_row, tiles.k_column(kv)), tiles.stride, s_qk);
    softmax.absorb(s_qk, queries, keys, tiles.scale, o, o_stride, tiles.dim());
    tiles.combine(queries, keys, s_qk, tiles.at(key_row, tiles.v_column(kv)), tiles.stride,
                  begin == 0 ? T(0) : T(1), o, o_stride);
  }
  for (std::int64_t r = 0; r < queries.size; ++r) {
    scale_row(o + r * o_stride, tiles.dim(), T(1) / softmax.sum[r]);
    lse_HT(head, first + r) = softmax.highest[r] + std::log(softmax.sum[r]);
  }
}

/// What the backward tasks share.
template <class T>
struct BackwardTiles {
  using A = Accumulator<T>;
  HostTiles<T> tiles;
  DeviceView<const A, 2> lse_HT;
  DeviceView<const T, 2> do_TO;
  DeviceView<const A, 2> delta_HT;
  DeviceView<T, 2> dqkv_TQ;
  T* p_qk;   ///< this task's two tiles
  T* ds_qk;

  std::int64_t do_stride() const { return static_cast<std::int64_t>(do_TO.stride(0)); }
  std::int64_t d_stride() const { return static_cast<std::int64_t>(dqkv_TQ.stride(0)); }

  /// Probabilities and the gradient of the scaled scores for one pair of spans.
  void form_pair(std::int64_t batch, std::int64_t head, const Span& queries,
                 const Span& keys) const {
    const std::int64_t kv = head / tiles.group_size();
    const std::int64_t first = tiles.row(batch, queries.begin);
    const std::int64_t key_row = tiles.row(batch, keys.begin);
    tiles.scores(queries, keys, tiles.at(first, tiles.q_column(head)), tiles.stride,
                 tiles.at(key_row, tiles.k_column(kv)), tiles.stride, p_qk);
    tiles.scores(queries, keys, &do_TO(first, tiles.q_column(head)), do_stride(),
                 tiles.at(key_row, tiles.v_column(kv)), tiles.stride, ds_qk);
    for (std::int64_t r = 0; r < queries.size; ++r) {
      form_row(p_qk + r * keys.size, ds_qk + r * keys.size,
               visible_keys(queries.begin + r, keys), keys.size, lse_HT(head, first + r),
               delta_HT(head, first + r));
    }
  }

  void form_row(T* p, T* ds, std::int64_t visible, std::int64_t keys, A lse, A delta) const {
    const A scale = tiles.scale;
#pragma omp simd
    for (std::int64_t k = 0; k < visible; ++k) {
      p[k] = detail::exponential(p[k] * scale - lse);
      ds[k] = p[k] * (ds[k] - delta) * scale;
    }
    std::fill(p + visible, p + keys, T(0));
    std::fill(ds + visible, ds + keys, T(0));
  }

  /// After form_pair: dq += ds k, or = for the first keys.
  void add_queries(std::int64_t batch, std::int64_t head, const Span& queries,
                   const Span& keys) const {
    const std::int64_t kv = head / tiles.group_size();
    tiles.combine(queries, keys, ds_qk,
                  tiles.at(tiles.row(batch, keys.begin), tiles.k_column(kv)), tiles.stride,
                  keys.begin == 0 ? T(0) : T(1),
                  &dqkv_TQ(tiles.row(batch, queries.begin), tiles.q_column(head)), d_stride());
  }

  /// After form_pair: dv += p^T do and dk += ds^T q.
  void add_keys(std::int64_t batch, std::int64_t head, const Span& queries,
                const Span& keys) const {
    const std::int64_t kv = head / tiles.group_size();
    const std::int64_t first = tiles.row(batch, queries.begin);
    const std::int64_t key_row = tiles.row(batch, keys.begin);
    tiles.combine_transposed(queries, keys, p_qk, &do_TO(first, tiles.q_column(head)),
                             do_stride(), &dqkv_TQ(key_row, tiles.v_column(kv)), d_stride());
    tiles.combine_transposed(queries, keys, ds_qk, tiles.at(first, tiles.q_column(head)),
                             tiles.stride, &dqkv_TQ(key_row, tiles.k_column(kv)), d_stride());
  }

  /// dk = dv = 0 for a run of keys.
  void clear_keys(std::int64_t batch, std::int64_t kv, const Span& keys) const {
    for (std::int64_t position = keys.begin; position < keys.end(); ++position) {
      T* const row = &dqkv_TQ(tiles.row(batch, position), 0);
      std::fill_n(row + tiles.k_column(kv), tiles.dim(), T(0));
      std::fill_n(row + tiles.v_column(kv), tiles.dim(), T(0));
    }
  }
};

/// All gradients of one key/value head and its query heads in one sequence.
template <class T>
void backward_group(const BackwardTiles<T>& backward, std::int64_t batch, std::int64_t kv) {
  const HostTiles<T>& tiles = backward.tiles;
  backward.clear_keys(batch, kv, {0, tiles.shape.sequence});
  for (std::int64_t h = 0; h < tiles.group_size(); ++h) {
    const std::int64_t head = kv * tiles.group_size() + h;
    for (std::int64_t tile = 0; tile < tiles.q_tiles(); ++tile) {
      const Span queries = tiles.q_tile(tile);
      for (std::int64_t begin = 0; begin < queries.end(); begin += kKeys) {
        const Span keys{begin, std::min(kKeys, queries.end() - begin)};
        backward.form_pair(batch, head, queries, keys);
        backward.add_queries(batch, head, queries, keys);
        backward.add_keys(batch, head, queries, keys);
      }
    }
  }
}

/// dq of one query tile.
template <class T>
void backward_queries(const BackwardTiles<T>& backward, std::int64_t batch, std::int64_t head,
                      const Span& queries) {
  for (std::int64_t begin = 0; begin < queries.end(); begin += kKeys) {
    const Span keys{begin, std::min(kKeys, queries.end() - begin)};
    backward.form_pair(batch, head, queries, keys);
    backward.add_queries(batch, head, queries, keys);
  }
}

/// dk and dv of one tile of keys.
template <class T>
void backward_keys(const BackwardTiles<T>& backward, std::int64_t batch, std::int64_t kv,
                   const Span& keys) {
  const HostTiles<T>& tiles = backward.tiles;
  backward.clear_keys(batch, kv, keys);
  for (std::int64_t h = 0; h < tiles.group_size(); ++h) {
    for (std::int64_t begin = keys.begin; begin < tiles.shape.sequence; begin += kKeys) {
      const Span queries{begin, std::min(kKeys, tiles.shape.sequence - begin)};
      const std::int64_t head = kv * tiles.group_size() + h;
      backward.form_pair(batch, head, queries, keys);
      backward.add_keys(batch, head, queries, keys);
    }
  }
}

}  // namespace

BackwardTasks choose_backward_tasks(const AttentionShape& shape, int threads) {
  // kSplit forms 7 tile products where kFused forms 5, so idle threads up to that share pay.
  const std::int64_t tasks = shape.batch * shape.kv_heads;
  const std::int64_t rounds = divide_up(tasks, threads);
  return 7 * tasks >= 5 * rounds * threads ? BackwardTasks::kFused : BackwardTasks::kSplit;
}

template <class T>
void host_attention_forward(const ExecSpace& exec, const AttentionShape& shape,
                            Accumulator<T> scale, const DeviceView<const T, 2>& qkv_TQ,
                            Arena& scratch, const DeviceView<T, 2>& o_TO,
                            const DeviceView<Accumulator<T>, 2>& lse_HT) {
  const ArenaScope scope(scratch);
  const auto tile_XM = scratch.take<T>(slot_count(exec), kQueries * kKeys);
  const HostTiles<T> tiles = make_host_tiles<T>(shape, scale, qkv_TQ);
  const std::int64_t q_tiles = tiles.q_tiles();
  for_each_task(exec, "pleat::kernels::attention_forward", shape.batch * shape.heads * q_tiles,
                [&](const std::int64_t task, const std::int64_t slot) {
                  // The long rows first, so that the threads finish together.
                  const Span queries = tiles.q_tile(q_tiles - 1 - task % q_tiles);
                  const std::int64_t head = task / q_tiles % shape.heads;
                  const std::int64_t batch = task / q_tiles / shape.heads;
                  forward_tile<T>(tiles, batch, head, queries, &tile_XM(slot, 0), o_TO, lse_HT);
                });
}

template <class T>
void host_attention_backward(const ExecSpace& exec, const AttentionShape& shape,
                             Accumulator<T> scale, const DeviceView<const T, 2>& qkv_TQ,
                             const DeviceView<const T, 2>& o_TO,
                             const DeviceView<const Accumulator<T>, 2>& lse_HT,
                             const DeviceView<const T, 2>& do_TO, BackwardTasks tasks,
                             Arena& scratch, const DeviceView<T, 2>& dqkv_TQ) {
  const ArenaScope scope(scratch);
  const auto delta_HT = scratch.take<Accumulator<T>>(shape.heads, shape.tokens());
  attention_delta<T>(exec, shape, o_TO, do_TO, delta_HT);
  const auto tile_X2M = scratch.take<T>(slot_count(exec), 2, kQueries * kKeys);
  const HostTiles<T> tiles = make_host_tiles<T>(shape, scale, qkv_TQ);
  const auto of_slot = [&](const std::int64_t slot) {
    return BackwardTiles<T>{tiles,   lse_HT,  do_TO, delta_HT, dqkv_TQ, &tile_X2M(slot, 0, 0),
                            &tile_X2M(slot, 1, 0)};
  };
  const std::int64_t kv_heads = shape.kv_heads;
  if (tasks == BackwardTasks::kFused) {
    for_each_task(exec, "pleat::kernels::attention_backward", shape.batch * kv_heads,
                  [&](const std::int64_t task, const std::int64_t slot) {
                    backward_group<T>(of_slot(slot), task / kv_heads, task % kv_heads);
                  });
    return;
  }
  const std::int64_t q_tiles = tiles.q_tiles();
  for_each_task(exec, "pleat::kernels::attention_backward_queries",
                shape.batch * shape.heads * q_tiles,
                [&](const std::int64_t task, const std::int64_t slot) {
                  const Span queries = tiles.q_tile(q_tiles - 1 - task % q_tiles);
                  backward_queries<T>(of_slot(slot), task / q_tiles / shape.heads,
                                      task / q_tiles % shape.heads, queries);
                });
  for_each_task(exec, "pleat::kernels::attention_backward_keys", shape.batch * kv_heads * q_tiles,
                [&](const std::int64_t task, const std::int64_t slot) {
                  const Span keys = tiles.q_tile(task % q_tiles);
                  backward_keys<T>(of_slot(slot), task / q_tiles / kv_heads,
                                   task / q_tiles % kv_heads, keys);
                });
}

#define PLEAT_INSTANTIATE(T)                                                                   \
  template void host_attention_forward<T>(const ExecSpace&, const AttentionShape&,             \
                                          Accumulator<T>, const DeviceView<const T, 2>&,       \
                                          Arena&, const DeviceView<T, 2>&,                     \
                                          const DeviceView<Accumulator<T>, 2>&);               \
  template void host_attention_backward<T>(                                                    \
      const ExecSpace&, const AttentionShape&, Accumulator<T>, const DeviceView<const T, 2>&,  \
      const DeviceView<const T, 2>&, const DeviceView<const Accumulator<T>, 2>&,               \
      const DeviceView<const T, 2>&, BackwardTasks, Arena&, const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels

#endif
