// SPDX-License-Identifier: Apache-2.0
#include "attention_portable.hpp"
#include "attention_portable_tiles.hpp"

namespace pleat::kernels {

/// One team per (sequence, query head, query tile).
template <class T>
struct AttentionForward {
  using A = Accumulator<T>;
  using Tiles = AttentionTiles<T>;
  Tiles tiles;
  bool resumed;  ///< o and lse hold the attention to earlier keys
  DeviceView<const T, 2> q_TQ;
  DeviceView<const T, 2> kv_UR;
  DeviceView<T, 2> o_TO;
  DeviceView<A, 2> lse_HT;

  static std::size_t scratch_bytes(int tile, int head_dim) {
    return 3 * Tiles::Tile::shmem_size(tile, head_dim) +
           Tiles::Tile::shmem_size(tile, tile) + 3 * Tiles::Row::shmem_size(tile);
  }

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    const AttentionShape& shape = tiles.shape;
    const int tile = tiles.tile;
    const int dim = static_cast<int>(shape.head_dim);
    const int q_tile = team.league_rank() % tiles.q_tiles;
    const std::int64_t head = team.league_rank() / tiles.q_tiles % shape.heads;
    const std::int64_t batch = team.league_rank() / tiles.q_tiles / shape.heads;
    const std::int64_t kv_head = head / tiles.group_size();
    const std::int64_t q_row = tiles.q_row(batch, q_tile);
    const int queries = tiles.queries(q_tile);

    typename Tiles::Tile q_Bd(team.team_scratch(0), tile, dim);
    typename Tiles::Tile kv_Bd(team.team_scratch(0), tile, dim);
    typename Tiles::Tile o_Bd(team.team_scratch(0), tile, dim);
    typename Tiles::Tile p_BB(team.team_scratch(0), tile, tile);
    typename Tiles::Row max_B(team.team_scratch(0), tile);
    typename Tiles::Row sum_B(team.team_scratch(0), tile);
    typename Tiles::Row shrink_B(team.team_scratch(0), tile);

    load_tile(team, q_Bd, q_TQ, q_row, queries, head * dim, dim);
    // A normalised o is a sum of weights 1 under the maximum lse.
    const int kept = resumed ? queries : 0;
    load_tile(team, o_Bd, o_TO, q_row, kept, head * dim, dim);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile), [&](const int r) {
      max_B(r) =
          r < kept ? lse_HT(head, q_row + r) : -Kokkos::Experimental::infinity_v<A>;
      sum_B(r) = r < kept ? 1 : 0;
    });
    team.team_barrier();

    for (int k_tile = 0; k_tile < tiles.end_of_keys(q_tile); ++k_tile) {
      const std::int64_t k_row = tiles.k_row(batch, k_tile);
      const int keys = tiles.keys(k_tile);
      load_tile(team, kv_Bd, kv_UR, k_row, keys, tiles.k_column(kv_head), dim);
      team.team_barrier();
      multiply_transposed(team, q_Bd, kv_Bd, dim, p_BB);
      team.team_barrier();
      // Every query sees key 0 of the first tile, so the maximum is finite.
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile), [&](const int r) {
        const int visible = tiles.visible_keys(q_tile, r, k_tile);
        A highest = max_B(r);
        for (int k = 0; k < visible; ++k) {
          p_BB(r, k) *= tiles.scale;
          highest = p_BB(r, k) > highest ? p_BB(r, k) : highest;
        }
        A sum = 0;
        for (int k = 0; k < tile; ++k) {
          p_BB(r, k) = k < visible ? Kokkos::exp(p_BB(r, k) - highest) : A(0);
          sum += p_BB(r, k);
        }
        shrink_B(r) = Kokkos::exp(max_B(r) - highest);
        sum_B(r) = sum_B(r) * shrink_B(r) + sum;
        max_B(r) = highest;
      });
      load_tile(team, kv_Bd, kv_UR, k_row, keys, tiles.v_column(kv_head), dim);
      team.team_barrier();
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * dim),
                           [&](const int item) {
                             const int r = item / dim;
                             const int i = item % dim;
                             A sum = o_Bd(r, i) * shrink_B(r);
                             for (int k = 0; k < tile; ++k)
                               sum += p_BB(r, k) * kv_Bd(k, i);
                             o_Bd(r, i) = sum;
                           });
      team.team_barrier();
    }

    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, queries * dim),
                         [&](const int item) {
                           const int r = item / dim;
                           const int i = item % dim;
                           o_TO(q_row + r, head * dim + i) = T(o_Bd(r, i) / sum_B(r));
                         });
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, queries), [&](const int r) {
      lse_HT(head, q_row + r) = max_B(r) + Kokkos::log(sum_B(r));
    });
  }
};

template <class T>
void portable_attention_forward(const ExecSpace& exec, const AttentionShape& shape,
                                Accumulator<T> scale, Pieces pieces,
                                const DeviceView<const T, 2>& q_TQ,
                                const DeviceView<const T, 2>& kv_UR,
                                const DeviceView<T, 2>& o_TO,
                                const DeviceView<Accumulator<T>, 2>& lse_HT) {
  using Kernel = AttentionForward<T>;
  const auto tiles = make_tiles<T>(shape, scale, tile_rows<Kernel>(shape.head_dim));
  launch(exec, "pleat::kernels::attention_forward",
         shape.batch * shape.heads * tiles.q_tiles,
         Kernel::scratch_bytes(tiles.tile, static_cast<int>(shape.head_dim)),
         Kernel{tiles, pieces == Pieces::kFurther, q_TQ, kv_UR, o_TO, lse_HT});
}

#define PLEAT_INSTANTIATE(T)                                           \
  template void portable_attention_forward<T>(                         \
      const ExecSpace&, const AttentionShape&, Accumulator<T>, Pieces, \
      const DeviceView<const T, 2>&, const DeviceView<const T, 2>&,    \
      const DeviceView<T, 2>&, const DeviceView<Accumulator<T>, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels
