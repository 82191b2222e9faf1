// SPDX-License-Identifier: Apache-2.0
#include "attention_portable.hpp"
#include "attention_portable_tiles.hpp"

namespace pleat::kernels {

/// What both backward kernels read, and how a tile pair becomes p and ds.
template <class T>
struct AttentionBackwardInputs {
  using A = Accumulator<T>;
  using Tile = typename AttentionTiles<T>::Tile;
  AttentionTiles<T> tiles;
  DeviceView<const T, 2> q_TQ;
  DeviceView<const T, 2> kv_UR;
  DeviceView<const A, 2> lse_HT;
  DeviceView<const A, 2> delta_HT;
  DeviceView<const T, 2> do_TO;

  static std::size_t scratch_bytes(int tile, int head_dim) {
    return 4 * Tile::shmem_size(tile, head_dim) + 2 * Tile::shmem_size(tile, tile);
  }

  /// From s = q k^T and dp = do v^T in place: p and ds (with the scale), 0 where masked.
  KOKKOS_INLINE_FUNCTION void softmax_backward(const TeamMember& team, std::int64_t head,
                                               std::int64_t q_row, int q_tile, int k_tile,
                                               const Tile& p_BB,
                                               const Tile& ds_BB) const {
    const int tile = tiles.tile;
    const int queries = tiles.queries(q_tile);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * tile), [&](const int item) {
      const int q = item / tile;
      const int k = item % tile;
      if (q >= queries || k >= tiles.visible_keys(q_tile, q, k_tile)) {
        p_BB(q, k) = 0;
        ds_BB(q, k) = 0;
        return;
      }
      const A p = Kokkos::exp(p_BB(q, k) * tiles.scale - lse_HT(head, q_row + q));
      p_BB(q, k) = p;
      ds_BB(q, k) = p * (ds_BB(q, k) - delta_HT(head, q_row + q)) * tiles.scale;
    });
  }
};

/// One team per (sequence, query head, query tile): the queries' gradient.
template <class T>
struct AttentionBackwardQueries {
  using A = Accumulator<T>;
  using Tile = typename AttentionTiles<T>::Tile;
  AttentionBackwardInputs<T> in;
  bool accumulate;
  DeviceView<T, 2> dq_TQ;

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    const AttentionTiles<T>& tiles = in.tiles;
    const AttentionShape& shape = tiles.shape;
    const int tile = tiles.tile;
    const int dim = static_cast<int>(shape.head_dim);
    const int q_tile = team.league_rank() % tiles.q_tiles;
    const std::int64_t head = team.league_rank() / tiles.q_tiles % shape.heads;
    const std::int64_t batch = team.league_rank() / tiles.q_tiles / shape.heads;
    const std::int64_t kv_head = head / tiles.group_size();
    const std::int64_t q_row = tiles.q_row(batch, q_tile);
    const int queries = tiles.queries(q_tile);

    Tile q_Bd(team.team_scratch(0), tile, dim);
    Tile do_Bd(team.team_scratch(0), tile, dim);
    Tile kv_Bd(team.team_scratch(0), tile, dim);
    Tile dq_Bd(team.team_scratch(0), tile, dim);
    Tile p_BB(team.team_scratch(0), tile, tile);
    Tile ds_BB(team.team_scratch(0), tile, tile);

    load_tile(team, q_Bd, in.q_TQ, q_row, queries, head * dim, dim);
    load_tile(team, do_Bd, in.do_TO, q_row, queries, head * dim, dim);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * dim),
                         [&](const int item) { dq_Bd(item / dim, item % dim) = 0; });
    for (int k_tile = 0; k_tile < tiles.end_of_keys(q_tile); ++k_tile) {
      const std::int64_t k_row = tiles.k_row(batch, k_tile);
      const int keys = tiles.keys(k_tile);
      team.team_barrier();
      load_tile(team, kv_Bd, in.kv_UR, k_row, keys, tiles.v_column(kv_head), dim);
      team.team_barrier();
      multiply_transposed(team, do_Bd, kv_Bd, dim, ds_BB);
      team.team_barrier();
      load_tile(team, kv_Bd, in.kv_UR, k_row, keys, tiles.k_column(kv_head), dim);
      team.team_barrier();
      multiply_transposed(team, q_Bd, kv_Bd, dim, p_BB);
      team.team_barrier();
      in.softmax_backward(team, head, q_row, q_tile, k_tile, p_BB, ds_BB);
      team.team_barrier();
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * dim),
                           [&](const int item) {
                             const int q = item / dim;
                             const int i = item % dim;
                             A sum = dq_Bd(q, i);
                             for (int k = 0; k < keys; ++k)
                               sum += ds_BB(q, k) * kv_Bd(k, i);
                             dq_Bd(q, i) = sum;
                           });
    }
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, queries * dim),
                         [&](const int item) {
                           const int q = item / dim;
                           const int i = item % dim;
                           T& dq = dq_TQ(q_row + q, head * dim + i);
                           dq = T(accumulate ? A(dq) + dq_Bd(q, i) : dq_Bd(q, i));
                         });
  }
};

/// One team per (sequence, key/value head, key tile): the gradients of keys and values,
/// summed over the query heads of the group and their query tiles in that order.
template <class T>
struct AttentionBackwardKeys {
  using A = Accumulator<T>;
  using Tile = typename AttentionTiles<T>::Tile;
  AttentionBackwardInputs<T> in;
  bool accumulate;
  DeviceView<T, 2> dkv_UR;

  static std::size_t scratch_bytes(int tile, int head_dim) {
    return 5 * Tile::shmem_size(tile, head_dim) + 2 * Tile::shmem_size(tile, tile);
  }

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    const AttentionTiles<T>& tiles = in.tiles;
    const AttentionShape& shape = tiles.shape;
    const int tile = tiles.tile;
    const int dim = static_cast<int>(shape.head_dim);
    const int k_tile = team.league_rank() % tiles.k_tiles;
    const std::int64_t kv_head = team.league_rank() / tiles.k_tiles % shape.kv_heads;
    const std::int64_t batch = team.league_rank() / tiles.k_tiles / shape.kv_heads;
    const std::int64_t k_row = tiles.k_row(batch, k_tile);
    const int keys = tiles.keys(k_tile);

    Tile k_Bd(team.team_scratch(0), tile, dim);
    Tile v_Bd(team.team_scratch(0), tile, dim);
    Tile query_Bd(team.team_scratch(0), tile, dim);
    Tile dk_Bd(team.team_scratch(0), tile, dim);
    Tile dv_Bd(team.team_scratch(0), tile, dim);
    Tile p_BB(team.team_scratch(0), tile, tile);
    Tile ds_BB(team.team_scratch(0), tile, tile);

    load_tile(team, k_Bd, in.kv_UR, k_row, keys, tiles.k_column(kv_head), dim);
    load_tile(team, v_Bd, in.kv_UR, k_row, keys, tiles.v_column(kv_head), dim);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * dim), [&](const int item) {
      dk_Bd(item / dim, item % dim) = 0;
      dv_Bd(item / dim, item % dim) = 0;
    });
    for (int h = 0; h < tiles.group_size(); ++h) {
      const std::int64_t head = kv_head * tiles.group_size() + h;
      for (int q_tile = tiles.first_of_queries(k_tile); q_tile < tiles.q_tiles;
           ++q_tile) {
        const std::int64_t q_row = tiles.q_row(batch, q_tile);
        const int queries = tiles.queries(q_tile);
        team.team_barrier();
        load_tile(team, query_Bd, in.q_TQ, q_row, queries, head * dim, dim);
        team.team_barrier();
        multiply_transposed(team, query_Bd, k_Bd, dim, p_BB);
        team.team_barrier();
        load_tile(team, query_Bd, in.do_TO, q_row, queries, head * dim, dim);
        team.team_barrier();
        multiply_transposed(team, query_Bd, v_Bd, dim, ds_BB);
        team.team_barrier();
        in.softmax_backward(team, head, q_row, q_tile, k_tile, p_BB, ds_BB);
        team.team_barrier();
        add_transposed_product(team, p_BB, query_Bd, queries, dim, dv_Bd);
        team.team_barrier();
        load_tile(team, query_Bd, in.q_TQ, q_row, queries, head * dim, dim);
        team.team_barrier();
        add_transposed_product(team, ds_BB, query_Bd, queries, dim, dk_Bd);
      }
    }
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, keys * dim), [&](const int item) {
      const int k = item / dim;
      const int i = item % dim;
      T& dk = dkv_UR(k_row + k, tiles.k_column(kv_head) + i);
      T& dv = dkv_UR(k_row + k, tiles.v_column(kv_head) + i);
      dk = T(accumulate ? A(dk) + dk_Bd(k, i) : dk_Bd(k, i));
      dv = T(accumulate ? A(dv) + dv_Bd(k, i) : dv_Bd(k, i));
    });
  }

  /// y[k] += sum over q of weights[q][k] x[q].
  KOKKOS_INLINE_FUNCTION static void add_transposed_product(const TeamMember& team,
                                                            const Tile& weights,
                                                            const Tile& x, int queries,
                                                            int dim, const Tile& y) {
    const int tile = y.extent_int(0);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * dim), [&](const int item) {
      const int k = item / dim;
      const int i = item % dim;
      A sum = y(k, i);
      for (int q = 0; q < queries; ++q) sum += weights(q, k) * x(q, i);
      y(k, i) = sum;
    });
  }
};

template <class T>
void portable_attention_backward(const ExecSpace& exec, const AttentionShape& shape,
                                 Accumulator<T> scale, Pieces pieces,
                                 bool accumulate_keys, const DeviceView<const T, 2>& q_TQ,
                                 const DeviceView<const T, 2>& kv_UR,
                                 const DeviceView<const Accumulator<T>, 2>& lse_HT,
                                 const DeviceView<const Accumulator<T>, 2>& delta_HT,
                                 const DeviceView<const T, 2>& do_TO,
                                 const DeviceView<T, 2>& dq_TQ,
                                 const DeviceView<T, 2>& dkv_UR) {
  using Keys = AttentionBackwardKeys<T>;
  const auto tiles = make_tiles<T>(shape, scale, tile_rows<Keys>(shape.head_dim));
  const auto dim = static_cast<int>(shape.head_dim);
  const AttentionBackwardInputs<T> in{tiles, q_TQ, kv_UR, lse_HT, delta_HT, do_TO};
  launch(exec, "pleat::kernels::attention_backward_queries",
         shape.batch * shape.heads * tiles.q_tiles,
         AttentionBackwardInputs<T>::scratch_bytes(tiles.tile, dim),
         AttentionBackwardQueries<T>{in, pieces == Pieces::kFurther, dq_TQ});
  launch(exec, "pleat::kernels::attention_backward_keys",
         shape.batch * shape.kv_heads * tiles.k_tiles,
         Keys::scratch_bytes(tiles.tile, dim), Keys{in, accumulate_keys, dkv_UR});
}

#define PLEAT_INSTANTIATE(T)                                                     \
  template void portable_attention_backward<T>(                                  \
      const ExecSpace&, const AttentionShape&, Accumulator<T>, Pieces, bool,     \
      const DeviceView<const T, 2>&, const DeviceView<const T, 2>&,              \
      const DeviceView<const Accumulator<T>, 2>&,                                \
      const DeviceView<const Accumulator<T>, 2>&, const DeviceView<const T, 2>&, \
      const DeviceView<T, 2>&, const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels
