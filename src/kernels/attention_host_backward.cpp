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
  A* p_qk;  ///< this task's two tiles
  A* ds_qk;
  A* sums;  ///< and, where needed, the rows of SumRows: of queries or keys, three times

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

  void form_row(A* p, A* ds, std::int64_t visible, std::int64_t keys, A lse,
                A delta) const {
    const A scale = tiles.scale;
#pragma omp simd
    for (std::int64_t k = 0; k < visible; ++k) {
      p[k] = detail::exponential(p[k] * scale - lse);
      ds[k] = p[k] * (ds[k] - delta) * scale;
    }
    std::fill(p + visible, p + keys, A(0));
    std::fill(ds + visible, ds + keys, A(0));
  }

  /// The gradient of a run of queries; `beside` as in SumRows.
  SumRows<T> begin_queries(std::int64_t batch, std::int64_t head, const Span& queries,
                           A* beside) const {
    const SumRows<T> dq(&dq_TQ(tiles.q_row(batch, queries.begin), tiles.q_column(head)),
                        static_cast<std::int64_t>(dq_TQ.stride(0)), queries.size,
                        tiles.dim(), beside);
    if (pieces == Pieces::kFurther) dq.load();
    return dq;
  }

  /// After form_pair: dq += ds k, or = for the first keys of all.
  void add_queries(std::int64_t batch, std::int64_t head, const Span& queries,
                   const Span& keys, const SumRows<T>& dq) const {
    const std::int64_t kv = head / tiles.group_size();
    const bool overwrite = keys.begin == 0 && pieces == Pieces::kFirst;
    tiles.combine(queries, keys, ds_qk, tiles.k(tiles.k_row(batch, keys.begin), kv),
                  tiles.kv_stride(), overwrite ? A(0) : A(1), dq);
  }

  /// The gradients of a run of keys, dk and dv.
  struct KeyRows {
    std::int64_t first;
    SumRows<T> dk;
    SumRows<T> dv;
  };

  /// They start at 0, unless they accumulate.
  KeyRows begin_keys(std::int64_t batch, std::int64_t kv, const Span& keys,
                     A* beside) const {
    const std::int64_t row = tiles.k_row(batch, keys.begin);
    const KeyRows rows{
        keys.begin,
        {&dkv_UR(row, tiles.k_column(kv)), dkv_stride(), keys.size, tiles.dim(), beside},
        {&dkv_UR(row, tiles.v_column(kv)), dkv_stride(), keys.size, tiles.dim(),
         beside + keys.size * tiles.dim()}};
    for (const SumRows<T>& gradient : {rows.dk, rows.dv}) {
      accumulate_keys ? gradient.load() : gradient.clear();
    }
    return rows;
  }

  /// After form_pair: dv += p^T do and dk += ds^T q.
  void add_keys(std::int64_t batch, std::int64_t head, const Span& queries,
                const Span& keys, const KeyRows& rows) const {
    const std::int64_t first = tiles.q_row(batch, queries.begin);
    const std::int64_t offset = keys.begin - rows.first;
    tiles.combine_transposed(queries, keys, p_qk, d_out(first, head), do_stride(), offset,
                             rows.dv);
    tiles.combine_transposed(queries, keys, ds_qk, tiles.q(first, head), tiles.q_stride(),
                             offset, rows.dk);
  }

  void end_keys(const KeyRows& rows) const {
    rows.dk.store();
    rows.dv.store();
  }
};

/// Numbers of BackwardTiles::sums that a thread needs.
template <class T>
std::int64_t backward_sums(const HostTiles<T>& tiles, BackwardTasks tasks) {
  if (!SumRows<T>::kBeside) return 0;
  const std::int64_t queries = tiles.size.queries;
  const std::int64_t keys = tasks == BackwardTasks::kFused ? tiles.shape.keys : queries;
  return (queries + 2 * keys) * tiles.dim();
}

/// All gradients of one key/value head and its query heads in one sequence.
template <class T>
void backward_group(const BackwardTiles<T>& backward, std::int64_t batch,
                    std::int64_t kv) {
  const HostTiles<T>& tiles = backward.tiles;
  const auto rows = backward.begin_keys(batch, kv, {0, tiles.shape.keys},
                                        backward.sums + tiles.size.queries * tiles.dim());
  for (std::int64_t h = 0; h < tiles.group_size(); ++h) {
    const std::int64_t head = kv * tiles.group_size() + h;
    for (std::int64_t tile = 0; tile < tiles.q_tiles(); ++tile) {
      const Span queries = tiles.q_tile(tile);
      const SumRows<T> dq = backward.begin_queries(batch, head, queries, backward.sums);
      tiles.for_each_chunk_of_keys(queries, [&](const Span& keys) {
        backward.form_pair(batch, head, queries, keys);
        backward.add_queries(batch, head, queries, keys, dq);
        backward.add_keys(batch, head, queries, keys, rows);
      });
      dq.store();
    }
  }
  backward.end_keys(rows);
}

/// dq of one query tile.
template <class T>
void backward_queries(const BackwardTiles<T>& backward, std::int64_t batch,
                      std::int64_t head, const Span& queries) {
  const SumRows<T> dq = backward.begin_queries(batch, head, queries, backward.sums);
  backward.tiles.for_each_chunk_of_keys(queries, [&](const Span& keys) {
    backward.form_pair(batch, head, queries, keys);
    backward.add_queries(batch, head, queries, keys, dq);
  });
  dq.store();
}

/// dk and dv of one tile of keys.
template <class T>
void backward_keys(const BackwardTiles<T>& backward, std::int64_t batch, std::int64_t kv,
                   const Span& keys) {
  const HostTiles<T>& tiles = backward.tiles;
  const auto rows = backward.begin_keys(batch, kv, keys, backward.sums);
  for (std::int64_t h = 0; h < tiles.group_size(); ++h) {
    const std::int64_t head = kv * tiles.group_size() + h;
    tiles.for_each_chunk_of_queries(keys, [&](const Span& queries) {
      backward.form_pair(batch, head, queries, keys);
      backward.add_keys(batch, head, queries, keys, rows);
    });
  }
  backward.end_keys(rows);
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
  const HostTiles<T> tiles{shape, scale, q_TQ, kv_UR};
  const auto tile_X2M = scratch.take<Accumulator<T>>(slot_count(exec), 2,
                                                     tiles.size.queries * tiles.size.keys);
  const auto sums_XM =
      scratch.take<Accumulator<T>>(slot_count(exec), backward_sums<T>(tiles, tasks));
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
                            &tile_X2M(slot, 1, 0),
                            sums_XM.data() + slot * sums_XM.extent_int(1)};
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
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels

#endif
