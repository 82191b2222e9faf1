// SPDX-License-Identifier: Apache-2.0
#include "attention_host.hpp"

#include "gemm_host.hpp"

#if defined(PLEAT_HOST_GEMM)

#include "attention_host_tiles.hpp"
#include "fast_math.hpp"

namespace pleat::kernels {
namespace {

/// What the backward tasks share.
template <class T>
struct BackwardTiles {
  using A = Accumulator<T>;
  HostTiles<T> tiles;
  Pieces pieces;
  bool accumulate_keys;
  DeviceView<const A, 2> lse_HT;
  DeviceView<const A, 2> delta_HT;
  DeviceView<const T, 2> do_TO;
  DeviceView<T, 2> dq_TQ;
  DeviceView<T, 2> dkv_UR;
  T* p_qk;  ///< this task's two tiles
  T* ds_qk;

  const T* d_out(std::int64_t row, std::int64_t head) const {
    return &do_TO(row, tiles.q_column(head));
  }
  std::int64_t do_stride() const { return static_cast<std::int64_t>(do_TO.stride(0)); }
  std::int64_t dkv_stride() const { return static_cast<std::int64_t>(dkv_UR.stride(0)); }

  /// Probabilities and the gradient of the scaled scores for one pair of spans.
  void form_pair(std::int64_t batch, std::int64_t head, const Span& queries,
                 const Span& keys) const {
    const std::int64_t kv = head / tiles.group_size();
    const std::int64_t first = tiles.q_row(batch, queries.begin);
    const std::int64_t key_row = tiles.k_row(batch, keys.begin);
    tiles.scores(queries, keys, tiles.q(first, head), tiles.q_stride(),
                 tiles.k(key_row, kv), tiles.kv_stride(), p_qk);
    tiles.scores(queries, keys, d_out(first, head), do_stride(), tiles.v(key_row, kv),
                 tiles.kv_stride(), ds_qk);
    for (std::int64_t r = 0; r < queries.size; ++r) {
      form_row(p_qk + r * keys.size, ds_qk + r * keys.size,
               tiles.visible_keys(queries.begin + r, keys), keys.size,
               lse_HT(head, first + r), delta_HT(head, first + r));
    }
  }

  void form_row(T* p, T* ds, std::int64_t visible, std::int64_t keys, A lse,
                A delta) const {
    const A scale = tiles.scale;
#pragma omp simd
    for (std::int64_t k = 0; k < visible; ++k) {
      p[k] = detail::exponential(p[k] * scale - lse);
      ds[k] = p[k] * (ds[k] - delta) * scale;
    }
    std::fill(p + visible, p + keys, T(0));
    std::fill(ds + visible, ds + keys, T(0));
  }

  /// After form_pair: dq += ds k, or = for the first keys of all.
  void add_queries(std::int64_t batch, std::int64_t head, const Span& queries,
                   const Span& keys) const {
    const std::int64_t kv = head / tiles.group_size();
    const bool overwrite = keys.begin == 0 && pieces == Pieces::kFirst;
    tiles.combine(queries, keys, ds_qk, tiles.k(tiles.k_row(batch, keys.begin), kv),
                  tiles.kv_stride(), overwrite ? T(0) : T(1),
                  &dq_TQ(tiles.q_row(batch, queries.begin), tiles.q_column(head)),
                  static_cast<std::int64_t>(dq_TQ.stride(0)));
  }

  /// After form_pair: dv += p^T do and dk += ds^T q.
  void add_keys(std::int64_t batch, std::int64_t head, const Span& queries,
                const Span& keys) const {
    const std::int64_t kv = head / tiles.group_size();
    const std::int64_t first = tiles.q_row(batch, queries.begin);
    const std::int64_t key_row = tiles.k_row(batch, keys.begin);
    tiles.combine_transposed(queries, keys, p_qk, d_out(first, head), do_stride(),
                             &dkv_UR(key_row, tiles.v_column(kv)), dkv_stride());
    tiles.combine_transposed(queries, keys, ds_qk, tiles.q(first, head), tiles.q_stride(),
                             &dkv_UR(key_row, tiles.k_column(kv)), dkv_stride());
  }

  /// dk = dv = 0 for a run of keys, unless they accumulate.
  void begin_keys(std::int64_t batch, std::int64_t kv, const Span& keys) const {
    if (accumulate_keys) return;
    for (std::int64_t key = keys.begin; key < keys.end(); ++key) {
      const std::int64_t row = tiles.k_row(batch, key);
      std::fill_n(&dkv_UR(row, tiles.k_column(kv)), tiles.dim(), T(0));
      std::fill_n(&dkv_UR(row, tiles.v_column(kv)), tiles.dim(), T(0));
    }
  }
};

/// All gradients of one key/value head and its query heads in one sequence.
template <class T>
void backward_group(const BackwardTiles<T>& backward, std::int64_t batch,
                    std::int64_t kv) {
  const HostTiles<T>& tiles = backward.tiles;
  backward.begin_keys(batch, kv, {0, tiles.shape.keys});
  for (std::int64_t h = 0; h < tiles.group_size(); ++h) {
    const std::int64_t head = kv * tiles.group_size() + h;
    for (std::int64_t tile = 0; tile < tiles.q_tiles(); ++tile) {
      const Span queries = tiles.q_tile(tile);
      tiles.for_each_chunk_of_keys(queries, [&](const Span& keys) {
        backward.form_pair(batch, head, queries, keys);
        backward.add_queries(batch, head, queries, keys);
        backward.add_keys(batch, head, queries, keys);
      });
    }
  }
}

/// dq of one query tile.
template <class T>
void backward_queries(const BackwardTiles<T>& backward, std::int64_t batch,
                      std::int64_t head, const Span& queries) {
  backward.tiles.for_each_chunk_of_keys(queries, [&](const Span& keys) {
    backward.form_pair(batch, head, queries, keys);
    backward.add_queries(batch, head, queries, keys);
  });
}

/// dk and dv of one tile of keys.
template <class T>
void backward_keys(const BackwardTiles<T>& backward, std::int64_t batch, std::int64_t kv,
                   const Span& keys) {
  const HostTiles<T>& tiles = backward.tiles;
  backward.begin_keys(batch, kv, keys);
  for (std::int64_t h = 0; h < tiles.group_size(); ++h) {
    const std::int64_t head = kv * tiles.group_size() + h;
    tiles.for_each_chunk_of_queries(keys, [&](const Span& queries) {
      backward.form_pair(batch, head, queries, keys);
      backward.add_keys(batch, head, queries, keys);
    });
  }
}

}  // namespace

BackwardTasks choose_backward_tasks(const AttentionShape& shape, int threads) {
  // kSplit forms 7 tile products where kFused forms 5, so idle threads up to that share
  // pay.
  const std::int64_t tasks = shape.batch * shape.kv_heads;
  const std::int64_t rounds = divide_up(tasks, threads);
  return 7 * tasks >= 5 * rounds * threads ? BackwardTasks::kFused
                                           : BackwardTasks::kSplit;
}

template <class T>
void host_attention_backward(const ExecSpace& exec, const AttentionShape& shape,
                             Accumulator<T> scale, Pieces pieces, bool accumulate_keys,
                             const DeviceView<const T, 2>& q_TQ,
                             const DeviceView<const T, 2>& kv_UR,
                             const DeviceView<const Accumulator<T>, 2>& lse_HT,
                             const DeviceView<const Accumulator<T>, 2>& delta_HT,
                             const DeviceView<const T, 2>& do_TO, BackwardTasks tasks,
                             Arena& scratch, const DeviceView<T, 2>& dq_TQ,
                             const DeviceView<T, 2>& dkv_UR) {
  const ArenaScope scope(scratch);
  const auto tile_X2M = scratch.take<T>(slot_count(exec), 2, kQueries * kKeys);
  const HostTiles<T> tiles{shape, scale, q_TQ, kv_UR};
  const auto of_slot = [&](const std::int64_t slot) {
    return BackwardTiles<T>{tiles,
                            pieces,
                            accumulate_keys,
                            lse_HT,
                            delta_HT,
                            do_TO,
                            dq_TQ,
                            dkv_UR,
                            &tile_X2M(slot, 0, 0),
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
  const std::int64_t k_tiles = tiles.k_tiles();
  for_each_task(exec, "pleat::kernels::attention_backward_keys",
                shape.batch * kv_heads * k_tiles,
                [&](const std::int64_t task, const std::int64_t slot) {
                  const Span keys = tiles.k_tile(task % k_tiles);
                  backward_keys<T>(of_slot(slot), task / k_tiles / kv_heads,
                                   task / k_tiles % kv_heads, keys);
                });
}

#define PLEAT_INSTANTIATE(T)                                                     \
  template void host_attention_backward<T>(                                      \
      const ExecSpace&, const AttentionShape&, Accumulator<T>, Pieces, bool,     \
      const DeviceView<const T, 2>&, const DeviceView<const T, 2>&,              \
      const DeviceView<const Accumulator<T>, 2>&,                                \
      const DeviceView<const Accumulator<T>, 2>&, const DeviceView<const T, 2>&, \
      BackwardTasks, Arena&, const DeviceView<T, 2>&, const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels

#endif
