// SPDX-License-Identifier: Apache-2.0
#include "attention_host.hpp"

#include "gemm_host.hpp"

#if defined(PLEAT_HOST_GEMM)

#include <cmath>

#include "attention_host_tiles.hpp"
#include "fast_math.hpp"

namespace pleat::kernels {
namespace {

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
  A highest[kMostQueries];
  A sum[kMostQueries];
  bool started = false;  ///< o holds the attention to earlier keys

  OnlineSoftmax() {
    std::fill(highest, highest + kMostQueries, -Kokkos::Experimental::infinity_v<A>);
    std::fill(sum, sum + kMostQueries, A(0));
  }

  /// Goes on where other keys ended: their normalised o is a sum of weights 1 under the
  /// maximum lse.
  void resume(const A* lse, std::int64_t rows) {
    std::copy_n(lse, rows, highest);
    std::fill_n(sum, rows, A(1));
    started = true;
  }

  /// Scores of the next keys become probabilities under the new maximum; what was summed
  /// into o under the old one shrinks.
  template <class T>
  void absorb(A* s_qk, const HostTiles<T>& tiles, const Span& queries, const Span& keys,
              const SumRows<T>& o) {
    for (std::int64_t r = 0; r < queries.size; ++r) {
      A* const row = s_qk + r * keys.size;
      const std::int64_t visible = tiles.visible_keys(queries.begin + r, keys);
      const A now = std::max(highest[r], tiles.scale * largest(row, visible));
      const A shrink = std::exp(highest[r] - now);
      sum[r] =
          sum[r] * shrink + exponentiate_row(row, visible, keys.size, tiles.scale, now);
      if (started && shrink != A(1)) scale_row(o.row(r), tiles.dim(), shrink);
      highest[r] = now;
    }
    started = true;
  }
};

/// A thread's tiles: scores, and where needed the sums of the output.
template <class A>
struct ForwardTile {
  A* s_qk;
  A* o_qd;
};

/// One query tile of one head.
template <class T>
void forward_tile(const HostTiles<T>& tiles, Pieces pieces, std::int64_t batch,
                  std::int64_t head, const Span& queries,
                  const ForwardTile<Accumulator<T>>& tile, const DeviceView<T, 2>& o_TO,
                  const DeviceView<Accumulator<T>, 2>& lse_HT) {
  using A = Accumulator<T>;
  const std::int64_t kv = head / tiles.group_size();
  const std::int64_t first = tiles.q_row(batch, queries.begin);
  const SumRows<T> o(&o_TO(first, tiles.q_column(head)),
                     static_cast<std::int64_t>(o_TO.stride(0)), queries.size, tiles.dim(),
                     tile.o_qd);
  OnlineSoftmax<A> softmax;
  if (pieces == Pieces::kFurther) {
    softmax.resume(&lse_HT(head, first), queries.size);
    o.load();
  }
  tiles.for_each_chunk_of_keys(queries, [&](const Span& keys) {
    const std::int64_t key_row = tiles.k_row(batch, keys.begin);
    tiles.scores(queries, keys, tiles.q(first, head), tiles.q_stride(),
                 tiles.k(key_row, kv), tiles.kv_stride(), tile.s_qk);
    const A keep = softmax.started ? A(1) : A(0);
    softmax.absorb(tile.s_qk, tiles, queries, keys, o);
    tiles.combine(queries, keys, tile.s_qk, tiles.v(key_row, kv), tiles.kv_stride(), keep,
                  o);
  });
  for (std::int64_t r = 0; r < queries.size; ++r) {
    scale_row(o.row(r), tiles.dim(), A(1) / softmax.sum[r]);
    lse_HT(head, first + r) = softmax.highest[r] + std::log(softmax.sum[r]);
  }
  o.store();
}

}  // namespace

template <class T>
void host_attention_forward(const ExecSpace& exec, const AttentionShape& shape,
                            Accumulator<T> scale, Pieces pieces,
                            const DeviceView<const T, 2>& q_TQ,
                            const DeviceView<const T, 2>& kv_UR, Arena& scratch,
                            const DeviceView<T, 2>& o_TO,
                            const DeviceView<Accumulator<T>, 2>& lse_HT) {
  const ArenaScope scope(scratch);
  using A = Accumulator<T>;
  const HostTiles<T> tiles{shape, scale, q_TQ, kv_UR};
  const TileSize size = tiles.size;
  const auto tile_XM = scratch.take<A>(slot_count(exec), size.queries * size.keys);
  const auto sums_XM = scratch.take<A>(
      slot_count(exec), SumRows<T>::kBeside ? size.queries * shape.head_dim : 0);
  const std::int64_t q_tiles = tiles.q_tiles();
  for_each_task(
      exec, "pleat::kernels::attention_forward", shape.batch * shape.heads * q_tiles,
      [&](const std::int64_t task, const std::int64_t slot) {
        // The long rows first, so that the threads finish together.
        const Span queries = tiles.q_tile(q_tiles - 1 - task % q_tiles);
        const std::int64_t head = task / q_tiles % shape.heads;
        const std::int64_t batch = task / q_tiles / shape.heads;
        const ForwardTile<A> tile{tile_XM.data() + slot * tile_XM.extent_int(1),
                                  sums_XM.data() + slot * sums_XM.extent_int(1)};
        forward_tile<T>(tiles, pieces, batch, head, queries, tile, o_TO, lse_HT);
      });
}

#define PLEAT_INSTANTIATE(T)                                                \
  template void host_attention_forward<T>(                                  \
      const ExecSpace&, const AttentionShape&, Accumulator<T>, Pieces,      \
      const DeviceView<const T, 2>&, const DeviceView<const T, 2>&, Arena&, \
      const DeviceView<T, 2>&, const DeviceView<Accumulator<T>, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels

#endif
