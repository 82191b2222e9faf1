// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the portable forward and backward kernels share: where the tiles lie, and
/// what a team does with them. Legend as in attention.hpp; B tile rows.

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
  int tile;     ///< rows of a tile
  int q_tiles;  ///< tiles of the queries of a sequence
  int k_tiles;

  /// Rows of a tile: the last one may be shorter.
  KOKKOS_INLINE_FUNCTION int queries(int q_tile) const {
    return rows_left(shape.queries, q_tile);
  }
  KOKKOS_INLINE_FUNCTION int keys(int k_tile) const {
    return rows_left(shape.keys, k_tile);
  }
  KOKKOS_INLINE_FUNCTION int rows_left(std::int64_t rows, int index) const {
    const int left = static_cast<int>(rows) - index * tile;
    return left < tile ? left : tile;
  }
  /// The first row of a tile in its array.
  KOKKOS_INLINE_FUNCTION std::int64_t q_row(std::int64_t batch, int q_tile) const {
    return shape.first_query + batch * shape.query_stride + q_tile * tile;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t k_row(std::int64_t batch, int k_tile) const {
    return shape.first_key + batch * shape.key_stride + k_tile * tile;
  }

  /// How many keys of a tile, from its first, query q of another tile sees.
  KOKKOS_INLINE_FUNCTION int visible_keys(int q_tile, int q, int k_tile) const {
    const std::int64_t seen = q_tile * tile + q + shape.diagonal + 1 - k_tile * tile;
    const int all = keys(k_tile);
    return seen < 0 ? 0 : seen < all ? static_cast<int>(seen) : all;
  }
  /// One past the last tile of keys that any query of the tile sees.
  KOKKOS_INLINE_FUNCTION int end_of_keys(int q_tile) const {
    const std::int64_t seen = q_tile * tile + queries(q_tile) + shape.diagonal;
    return seen < shape.keys ? static_cast<int>((seen + tile - 1) / tile) : k_tiles;
  }
  /// The first tile of queries of which any sees a key of the tile.
  KOKKOS_INLINE_FUNCTION int first_of_queries(int k_tile) const {
    const std::int64_t query = k_tile * tile - shape.diagonal;
    return query > 0 ? static_cast<int>(query / tile) : 0;
  }

  KOKKOS_INLINE_FUNCTION int group_size() const {
    return static_cast<int>(shape.heads / shape.kv_heads);
  }
  KOKKOS_INLINE_FUNCTION std::int64_t k_column(std::int64_t kv_head) const {
    return shape.k_column + kv_head * shape.head_dim;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t v_column(std::int64_t kv_head) const {
    return shape.v_column + kv_head * shape.head_dim;
  }
};

/// destination[r][i] = source(first_row + r, first_column + i); missing rows become 0.
template <class Tile, class Source>
KOKKOS_INLINE_FUNCTION void load_tile(const TeamMember& team, const Tile& destination,
                                      const Source& source, std::int64_t first_row,
                                      int rows, std::int64_t first_column, int columns) {
  using A = typename Tile::value_type;
  const int tile = destination.extent_int(0);
  Kokkos::parallel_for(
      Kokkos::TeamVectorRange(team, tile * columns), [&](const int item) {
        const int r = item / columns;
        const int i = item % columns;
        destination(r, i) = r < rows ? A(source(first_row + r, first_column + i)) : A(0);
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

/// The largest tile whose scratch fits into what every GPU gives a block without asking.
template <class Kernel>
int tile_rows(std::int64_t head_dim) {
  constexpr std::size_t kScratchBytes = 40 * 1024;
  int tile = 32;
  while (tile > 2 &&
         Kernel::scratch_bytes(tile, static_cast<int>(head_dim)) > kScratchBytes) {
    tile /= 2;
  }
  return tile;
}

template <class T>
AttentionTiles<T> make_tiles(const AttentionShape& shape, Accumulator<T> scale,
                             int tile) {
  const auto tiles_of = [tile](std::int64_t rows) {
    return static_cast<int>((rows + tile - 1) / tile);
  };
  return {shape, scale, tile, tiles_of(shape.queries), tiles_of(shape.keys)};
}

template <class Kernel>
void launch(const ExecSpace& exec, const char* label, std::int64_t league,
            std::size_t bytes, const Kernel& kernel) {
  if (league == 0) return;
  TeamPolicy policy(exec, static_cast<int>(league), Kokkos::AUTO);
  policy.set_scratch_size(0, Kokkos::PerTeam(bytes));
  // As an argument of the launch. Kokkos would put kernels of more than 512 bytes into CUDA's
  // constant memory, for which the host waits until the last one of them has run.
  constexpr auto kAsArgument = Kokkos::Experimental::WorkItemProperty::HintLightWeight;
  Kokkos::parallel_for(label, Kokkos::Experimental::require(policy, kAsArgument), kernel);
}

}  // namespace pleat::kernels
