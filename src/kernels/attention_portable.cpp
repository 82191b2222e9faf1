// SPDX-License-Identifier: Apache-2.0
#include "attention_portable.hpp"

namespace pleat::kernels {

using TeamPolicy = Kokkos::TeamPolicy<ExecSpace>;
using TeamMember = TeamPolicy::member_type;

/// What all three kernels need to find a head's rows.
template <class T>
struct AttentionTiles {
  using A = Accumulator<T>;
  using Tile = Kokkos::View<A**, Kokkos::LayoutRight, ExecSpace::scratch_memory_space,
                            Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  using Row = Kokkos::View<A*, ExecSpace::scratch_memory_space,
                           Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  AttentionShape shape;
  A scale;
  int tile;   ///< rows of a tile
  int tiles;  ///< tiles of a sequence

  /// Rows of tile `index`: the last one may be shorter.
  KOKKOS_INLINE_FUNCTION int rows(int index) const {
    const auto left = static_cast<int>(shape.sequence) - index * tile;
    return left < tile ? left : tile;
  }
  KOKKOS_INLINE_FUNCTION int group_size() const {
    return static_cast<int>(shape.heads / shape.kv_heads);
  }
  KOKKOS_INLINE_FUNCTION std::int64_t k_column(std::int64_t kv_head) const {
    return (shape.heads + kv_head) * shape.head_dim;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t v_column(std::int64_t kv_head) const {
    return (shape.heads + shape.kv_heads + kv_head) * shape.head_dim;
  }
};

/// destination[r][i] = source(first_row + r, first_column + i); missing rows become 0.
template <class Tile, class Source>
KOKKOS_INLINE_FUNCTION void load_tile(const TeamMember& team, const Tile& destination,
                                      const Source& source, std::int64_t first_row, int rows,
                                      std::int64_t first_column, int columns) {
  const int tile = destination.extent_int(0);
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * columns), [&](const int item) {
    const int r = item / columns;
    const int i = item % columns;
    destination(r, i) = r < rows ? source(first_row + r, first_column + i) : 0;
  });
}

/// s[q][k] = x[q] . y[k] over the first `inner` columns.
template <class Tile>
KOKKOS_INLINE_FUNCTION void multiply_transposed(const TeamMember& team, const Tile& x,
                                                const Tile& y, int inner, const Tile& s) {
  const int tile = s.extent_int(0);
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * tile), [&](const int item) {
    const int q = item / tile;
    const int k = item % tile;
    typename Tile::value_type sum = 0;
    for (int i = 0; i < inner; ++i) sum += x(q, i) * y(k, i);
    s(q, k) = sum;
  });
}

/// One team per (sequence, query head, query tile).
template <class T>
struct AttentionForward {
  using A = Accumulator<T>;
  using Tiles = AttentionTiles<T>;
  Tiles tiles;
  DeviceView<const T, 2> qkv_TQ;
  DeviceView<T, 2> o_TO;
  DeviceView<A, 2> lse_HT;

  static std::size_t scratch_bytes(int tile, int head_dim) {
    return 3 * Tiles::Tile::shmem_size(tile, head_dim) + Tiles::Tile::shmem_size(tile, tile) +
           3 * Tiles::Row::shmem_size(tile);
  }

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    const AttentionShape& shape = tiles.shape;
    const int tile = tiles.tile;
    const int dim = static_cast<int>(shape.head_dim);
    const int q_tile = team.league_rank() % tiles.tiles;
    const std::int64_t head = team.league_rank() / tiles.tiles % shape.heads;
    const std::int64_t first = team.league_rank() / tiles.tiles / shape.heads * shape.sequence;
    const std::int64_t kv_head = head / tiles.group_size();
    const std::int64_t q_row = first + q_tile * tile;

    typename Tiles::Tile q_Bd(team.team_scratch(0), tile, dim);
    typename Tiles::Tile kv_Bd(team.team_scratch(0), tile, dim);
    typename Tiles::Tile o_Bd(team.team_scratch(0), tile, dim);
    typename Tiles::Tile p_BB(team.team_scratch(0), tile, tile);
    typename Tiles::Row max_B(team.team_scratch(0), tile);
    typename Tiles::Row sum_B(team.team_scratch(0), tile);
    typename Tiles::Row shrink_B(team.team_scratch(0), tile);

    load_tile(team, q_Bd, qkv_TQ, q_row, tiles.rows(q_tile), head * dim, dim);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * dim),
                         [&](const int item) { o_Bd(item / dim, item % dim) = 0; });
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile), [&](const int r) {
      max_B(r) = -Kokkos::Experimental::infinity_v<A>;
      sum_B(r) = 0;
    });
    team.team_barrier();

    for (int k_tile = 0; k_tile <= q_tile; ++k_tile) {
      const std::int64_t k_row = first + k_tile * tile;
      const int keys = tiles.rows(k_tile);
      load_tile(team, kv_Bd, qkv_TQ, k_row, keys, tiles.k_column(kv_head), dim);
      team.team_barrier();
      multiply_transposed(team, q_Bd, kv_Bd, dim, p_BB);
      team.team_barrier();
      // Key 0 of a tile is visible to every query of it, so the maximum is finite.
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile), [&](const int r) {
        const int visible = k_tile == q_tile && r + 1 < keys ? r + 1 : keys;
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
      load_tile(team, kv_Bd, qkv_TQ, k_row, keys, tiles.v_column(kv_head), dim);
      team.team_barrier();
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * dim), [&](const int item) {
        const int r = item / dim;
        const int i = item % dim;
        A sum = o_Bd(r, i) * shrink_B(r);
        for (int k = 0; k < tile; ++k) sum += p_BB(r, k) * kv_Bd(k, i);
        o_Bd(r, i) = sum;
      });
      team.team_barrier();
    }

    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tiles.rows(q_tile) * dim),
                         [&](const int item) {
                           const int r = item / dim;
                           const int i = item % dim;
                           o_TO(q_row + r, head * dim + i) = T(o_Bd(r, i) / sum_B(r));
                         });
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tiles.rows(q_tile)), [&](const int r) {
      lse_HT(head, q_row + r) = max_B(r) + Kokkos::log(sum_B(r));
    });
  }
};

template <class T>
struct AttentionDelta {
  std::int64_t heads;
  std::int64_t head_dim;
  DeviceView<const T, 2> o_TO;
  DeviceView<const T, 2> do_TO;
  DeviceView<Accumulator<T>, 2> delta_HT;

  KOKKOS_FUNCTION void operator()(const std::int64_t item) const {
    const std::int64_t token = item / heads;
    const std::int64_t head = item % heads;
    Accumulator<T> sum = 0;
    for (std::int64_t i = head * head_dim; i < (head + 1) * head_dim; ++i) {
      sum += Accumulator<T>(o_TO(token, i)) * Accumulator<T>(do_TO(token, i));
    }
    delta_HT(head, token) = sum;
  }
};

/// What both backward kernels read, and how a tile pair becomes p and ds.
template <class T>
struct AttentionBackwardInputs {
  using A = Accumulator<T>;
  using Tile = typename AttentionTiles<T>::Tile;
  AttentionTiles<T> tiles;
  DeviceView<const T, 2> qkv_TQ;
  DeviceView<const A, 2> lse_HT;
  DeviceView<const T, 2> do_TO;
  DeviceView<const A, 2> delta_HT;

  static std::size_t scratch_bytes(int tile, int head_dim) {
    return 4 * Tile::shmem_size(tile, head_dim) + 2 * Tile::shmem_size(tile, tile);
  }

  /// From s = q k^T and dp = do v^T in place: p and ds (with the scale), 0 where masked.
  KOKKOS_INLINE_FUNCTION void softmax_backward(const TeamMember& team, std::int64_t head,
                                               std::int64_t first, int q_tile, int k_tile,
                                               const Tile& p_BB, const Tile& ds_BB) const {
    const int tile = tiles.tile;
    const int queries = tiles.rows(q_tile);
    const int keys = tiles.rows(k_tile);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * tile), [&](const int item) {
      const int q = item / tile;
      const int k = item % tile;
      if (q >= queries || k >= keys || q_tile * tile + q < k_tile * tile + k) {
        p_BB(q, k) = 0;
        ds_BB(q, k) = 0;
        return;
      }
      const std::int64_t token = first + q_tile * tile + q;
      const A p = Kokkos::exp(p_BB(q, k) * tiles.scale - lse_HT(head, token));
      p_BB(q, k) = p;
      ds_BB(q, k) = p * (ds_BB(q, k) - delta_HT(head, token)) * tiles.scale;
    });
  }
};

/// One team per (sequence, query head, query tile): the queries' gradient.
template <class T>
struct AttentionBackwardQueries {
  using A = Accumulator<T>;
  using Tile = typename AttentionTiles<T>::Tile;
  AttentionBackwardInputs<T> in;
  DeviceView<T, 2> dqkv_TQ;

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    const AttentionTiles<T>& tiles = in.tiles;
    const AttentionShape& shape = tiles.shape;
    const int tile = tiles.tile;
    const int dim = static_cast<int>(shape.head_dim);
    const int q_tile = team.league_rank() % tiles.tiles;
    const std::int64_t head = team.league_rank() / tiles.tiles % shape.heads;
    const std::int64_t first = team.league_rank() / tiles.tiles / shape.heads * shape.sequence;
    const std::int64_t kv_head = head / tiles.group_size();
    const std::int64_t q_row = first + q_tile * tile;
    const int queries = tiles.rows(q_tile);

    Tile q_Bd(team.team_scratch(0), tile, dim);
    Tile do_Bd(team.team_scratch(0), tile, dim);
    Tile kv_Bd(team.team_scratch(0), tile, dim);
    Tile dq_Bd(team.team_scratch(0), tile, dim);
    Tile p_BB(team.team_scratch(0), tile, tile);
    Tile ds_BB(team.team_scratch(0), tile, tile);

    load_tile(team, q_Bd, in.qkv_TQ, q_row, queries, head * dim, dim);
    load_tile(team, do_Bd, in.do_TO, q_row, queries, head * dim, dim);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * dim),
                         [&](const int item) { dq_Bd(item / dim, item % dim) = 0; });
    for (int k_tile = 0; k_tile <= q_tile; ++k_tile) {
      const std::int64_t k_row = first + k_tile * tile;
      const int keys = tiles.rows(k_tile);
      team.team_barrier();
      load_tile(team, kv_Bd, in.qkv_TQ, k_row, keys, tiles.v_column(kv_head), dim);
      team.team_barrier();
      multiply_transposed(team, do_Bd, kv_Bd, dim, ds_BB);
      team.team_barrier();
      load_tile(team, kv_Bd, in.qkv_TQ, k_row, keys, tiles.k_column(kv_head), dim);
      team.team_barrier();
      multiply_transposed(team, q_Bd, kv_Bd, dim, p_BB);
      team.team_barrier();
      in.softmax_backward(team, head, first, q_tile, k_tile, p_BB, ds_BB);
      team.team_barrier();
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * dim), [&](const int item) {
        const int q = item / dim;
        const int i = item % dim;
        A sum = dq_Bd(q, i);
        for (int k = 0; k < keys; ++k) sum += ds_BB(q, k) * kv_Bd(k, i);
        dq_Bd(q, i) = sum;
      });
    }
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, queries * dim), [&](const int item) {
      const int q = item / dim;
      const int i = item % dim;
      dqkv_TQ(q_row + q, head * dim + i) = T(dq_Bd(q, i));
    });
  }
};

/// One team per (sequence, key/value head, key tile): the gradients of keys and values, summed
/// over the query heads of the group and their query tiles in that order.
template <class T>
struct AttentionBackwardKeys {
  using A = Accumulator<T>;
  using Tile = typename AttentionTiles<T>::Tile;
  AttentionBackwardInputs<T> in;
  DeviceView<T, 2> dqkv_TQ;

  static std::size_t scratch_bytes(int tile, int head_dim) {
    return 5 * Tile::shmem_size(tile, head_dim) + 2 * Tile::shmem_size(tile, tile);
  }

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    const AttentionTiles<T>& tiles = in.tiles;
    const AttentionShape& shape = tiles.shape;
    const int tile = tiles.tile;
    const int dim = static_cast<int>(shape.head_dim);
    const int k_tile = team.league_rank() % tiles.tiles;
    const std::int64_t kv_head = team.league_rank() / tiles.tiles % shape.kv_heads;
    const std::int64_t first = team.league_rank() / tiles.tiles / shape.kv_heads * shape.sequence;
    const std::int64_t k_row = first + k_tile * tile;
    const int keys = tiles.rows(k_tile);

    Tile k_Bd(team.team_scratch(0), tile, dim);
    Tile v_Bd(team.team_scratch(0), tile, dim);
    Tile query_Bd(team.team_scratch(0), tile, dim);
    Tile dk_Bd(team.team_scratch(0), tile, dim);
    Tile dv_Bd(team.team_scratch(0), tile, dim);
    Tile p_BB(team.team_scratch(0), tile, tile);
    Tile ds_BB(team.team_scratch(0), tile, tile);

    load_tile(team, k_Bd, in.qkv_TQ, k_row, keys, tiles.k_column(kv_head), dim);
    load_tile(team, v_Bd, in.qkv_TQ, k_row, keys, tiles.v_column(kv_head), dim);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile * dim), [&](const int item) {
      dk_Bd(item / dim, item % dim) = 0;
      dv_Bd(item / dim, item % dim) = 0;
    });
    for (int h = 0; h < tiles.group_size(); ++h) {
      const std::int64_t head = kv_head * tiles.group_size() + h;
      for (int q_tile = k_tile; q_tile < tiles.tiles; ++q_tile) {
        const std::int64_t q_row = first + q_tile * tile;
        const int queries = tiles.rows(q_tile);
        team.team_barrier();
        load_tile(team, query_Bd, in.qkv_TQ, q_row, queries, head * dim, dim);
        team.team_barrier();
        multiply_transposed(team, query_Bd, k_Bd, dim, p_BB);
        team.team_barrier();
        load_tile(team, query_Bd, in.do_TO, q_row, queries, head * dim, dim);
        team.team_barrier();
        multiply_transposed(team, query_Bd, v_Bd, dim, ds_BB);
        team.team_barrier();
        in.softmax_backward(team, head, first, q_tile, k_tile, p_BB, ds_BB);
        team.team_barrier();
        add_transposed_product(team, p_BB, query_Bd, queries, dim, dv_Bd);
        team.team_barrier();
        load_tile(team, query_Bd, in.qkv_TQ, q_row, queries, head * dim, dim);
        team.team_barrier();
        add_transposed_product(team, ds_BB, query_Bd, queries, dim, dk_Bd);
      }
    }
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, keys * dim), [&](const int item) {
      const int k = item / dim;
      const int i = item % dim;
      dqkv_TQ(k_row + k, tiles.k_column(kv_head) + i) = T(dk_Bd(k, i));
      dqkv_TQ(k_row + k, tiles.v_column(kv_head) + i) = T(dv_Bd(k, i));
    });
  }

  /// y[k] += sum over q of weights[q][k] x[q].
  KOKKOS_INLINE_FUNCTION static void add_transposed_product(const TeamMember& team,
                                                            const Tile& weights, const Tile& x,
                                                            int queries, int dim,
                                                            const Tile& y) {
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

namespace {

/// The largest tile whose scratch fits into what every GPU gives a block without asking.
template <class Kernel>
int tile_rows(std::int64_t head_dim) {
  constexpr std::size_t kScratchBytes = 40 * 1024;
  int tile = 32;
  while (tile > 2 && Kernel::scratch_bytes(tile, static_cast<int>(head_dim)) > kScratchBytes) {
    tile /= 2;
  }
  return tile;
}

template <class T>
AttentionTiles<T> make_tiles(const AttentionShape& shape, Accumulator<T> scale, int tile) {
  const auto tiles = static_cast<int>((shape.sequence + tile - 1) / tile);
  return {shape, scale, tile, tiles};
}

template <class Kernel>
void launch(const ExecSpace& exec, const char* label, std::int64_t league, std::size_t bytes,
            const Kernel& kernel) {
  if (league == 0) return;
  TeamPolicy policy(exec, static_cast<int>(league), Kokkos::AUTO);
  policy.set_scratch_size(0, Kokkos::PerTeam(bytes));
  Kokkos::parallel_for(label, policy, kernel);
}

}  // namespace

template <class T>
void attention_delta(const ExecSpace& exec, const AttentionShape& shape,
                     const DeviceView<const T, 2>& o_TO, const DeviceView<const T, 2>& do_TO,
                     const DeviceView<Accumulator<T>, 2>& delta_HT) {
  Kokkos::parallel_for(
      "pleat::kernels::attention_delta",
      Kokkos::RangePolicy<ExecSpace>(exec, 0, shape.tokens() * shape.heads),
      AttentionDelta<T>{shape.heads, shape.head_dim, o_TO, do_TO, delta_HT});
}

template <class T>
void portable_attention_forward(const ExecSpace& exec, const AttentionShape& shape,
                                Accumulator<T> scale, const DeviceView<const T, 2>& qkv_TQ,
                                const DeviceView<T, 2>& o_TO,
                                const DeviceView<Accumulator<T>, 2>& lse_HT) {
  using Kernel = AttentionForward<T>;
  const auto tiles = make_tiles<T>(shape, scale, tile_rows<Kernel>(shape.head_dim));
  launch(exec, "pleat::kernels::attention_forward", shape.batch * shape.heads * tiles.tiles,
         Kernel::scratch_bytes(tiles.tile, static_cast<int>(shape.head_dim)),
         Kernel{tiles, qkv_TQ, o_TO, lse_HT});
}

template <class T>
void portable_attention_backward(const ExecSpace& exec, const AttentionShape& shape,
                                 Accumulator<T> scale, const DeviceView<const T, 2>& qkv_TQ,
                                 const DeviceView<const T, 2>& o_TO,
                                 const DeviceView<const Accumulator<T>, 2>& lse_HT,
                                 const DeviceView<const T, 2>& do_TO, Arena& scratch,
                                 const DeviceView<T, 2>& dqkv_TQ) {
  using Keys = AttentionBackwardKeys<T>;
  const ArenaScope scope(scratch);
  const auto delta_HT = scratch.take<Accumulator<T>>(shape.heads, shape.tokens());
  attention_delta<T>(exec, shape, o_TO, do_TO, delta_HT);

  const auto tiles = make_tiles<T>(shape, scale, tile_rows<Keys>(shape.head_dim));
  const auto dim = static_cast<int>(shape.head_dim);
  const AttentionBackwardInputs<T> in{tiles, qkv_TQ, lse_HT, do_TO, delta_HT};
  launch(exec, "pleat::kernels::attention_backward_queries",
         shape.batch * shape.heads * tiles.tiles,
         AttentionBackwardInputs<T>::scratch_bytes(tiles.tile, dim),
         AttentionBackwardQueries<T>{in, dqkv_TQ});
  launch(exec, "pleat::kernels::attention_backward_keys",
         shape.batch * shape.kv_heads * tiles.tiles, Keys::scratch_bytes(tiles.tile, dim),
         Keys{in, dqkv_TQ});
}

#define PLEAT_INSTANTIATE(T)                                                                   \
  template void attention_delta<T>(                                                            \
      const ExecSpace&, const AttentionShape&, const DeviceView<const T, 2>&,                  \
      const DeviceView<const T, 2>&, const DeviceView<Accumulator<T>, 2>&);                    \
  template void portable_attention_forward<T>(                                                 \
      const ExecSpace&, const AttentionShape&, Accumulator<T>, const DeviceView<const T, 2>&,  \
      const DeviceView<T, 2>&, const DeviceView<Accumulator<T>, 2>&);                          \
  template void portable_attention_backward<T>(                                                \
      const ExecSpace&, const AttentionShape&, Accumulator<T>, const DeviceView<const T, 2>&,  \
      const DeviceView<const T, 2>&, const DeviceView<const Accumulator<T>, 2>&,               \
      const DeviceView<const T, 2>&, Arena&, const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels
