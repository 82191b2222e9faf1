// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Ranks that hold chunks of every sequence, as the tests of attention in pieces
/// need them.

#include "attention_reference.hpp"

namespace pleat::test {

/// A run of consecutive positions of every sequence.
struct Chunk {
  Index begin, size;
};

/// Columns of rows of the fused projection.
struct Columns {
  Index begin, size;
};

inline Columns query_columns(const Problem& problem) { return {0, problem.out_size()}; }
inline Columns key_value_columns(const Problem& problem) {
  return {problem.out_size(), 2 * problem.kv_heads * problem.head_dim};
}

/// Where the chunks of one rank lie in its arrays: `lead` unused rows, then sequence
/// after sequence, in each the chunks one after another, then `gap` unused rows.
struct Layout {
  Index batch;
  std::vector<Chunk> chunks;
  Index lead = 0, gap = 0;

  Index stride() const { return first_row(chunks.size()) - lead + gap; }
  Index rows() const { return lead + batch * stride(); }
  Index first_row(std::size_t chunk) const {
    Index row = lead;
    for (std::size_t c = 0; c < chunk; ++c) row += chunks[c].size;
    return row;
  }
};

/// Calls body(row of the rank, token of the whole batch).
template <class Body>
void for_each_row(const Layout& layout, Index sequence, const Body& body) {
  for (Index b = 0; b < layout.batch; ++b) {
    for (std::size_t c = 0; c < layout.chunks.size(); ++c) {
      for (Index i = 0; i < layout.chunks[c].size; ++i) {
        body(layout.first_row(c) + b * layout.stride() + i,
             b * sequence + layout.chunks[c].begin + i);
      }
    }
  }
}

inline constexpr double kUnused = 16384.0;  // in rows that nobody may read or write

/// The rank's rows of some columns of a tensor over all tokens.
inline Values gather(const Layout& layout, Index sequence, const Values& all,
                     Index row_size, const Columns& columns) {
  Values local(layout.rows() * columns.size, kUnused);
  for_each_row(layout, sequence, [&](Index row, Index token) {
    std::copy_n(all.begin() + token * row_size + columns.begin, columns.size,
                local.begin() + row * columns.size);
  });
  return local;
}

/// The other way; what must not have been written is checked.
inline void scatter(const Layout& layout, Index sequence, const Values& local,
                    Values& all, Index row_size, const Columns& columns) {
  std::vector<bool> used(layout.rows(), false);
  for_each_row(layout, sequence, [&](Index row, Index token) {
    used[row] = true;
    std::copy_n(local.begin() + row * columns.size, columns.size,
                all.begin() + token * row_size + columns.begin);
  });
  for (Index row = 0; row < layout.rows(); ++row) {
    if (used[row]) continue;
    for (Index i = 0; i < columns.size; ++i) {
      ASSERT_EQ(local[row * columns.size + i], kUnused) << "row " << row;
    }
  }
}

/// What one rank holds: queries of its positions, and their keys and values.
template <class T>
struct Rank {
  Layout layout;
  Arrays<T> arrays;
  std::vector<bool> has_queries_gradient, has_keys_gradient;  // per chunk
};

/// An array for results: NaN in the rows of the rank.
template <class T>
DeviceView<T, 2> results(const Layout& layout, Index sequence, Index columns) {
  const Values all(layout.batch * sequence * columns, std::nan(""));
  return to_device<T>(gather(layout, sequence, all, columns, {0, columns}), layout.rows(),
                      columns);
}

template <class T>
Rank<T> make_rank(const Problem& problem, const Layout& layout, const Values& qkv,
                  const Values& d_out) {
  const Columns q = query_columns(problem), kv = key_value_columns(problem);
  const Index sequence = problem.sequence, rows = layout.rows();
  const auto local = [&](const Values& all, Index row_size, const Columns& columns) {
    return to_device<T>(gather(layout, sequence, all, row_size, columns), rows,
                        columns.size);
  };
  using A = Accumulator<T>;
  return {layout,
          {.q_TQ = local(qkv, problem.row_size(), q),
           .kv_UR = local(qkv, problem.row_size(), kv),
           .o_TO = results<T>(layout, sequence, q.size),
           .do_TO = local(d_out, q.size, q),
           .dq_TQ = results<T>(layout, sequence, q.size),
           .dkv_UR = results<T>(layout, sequence, kv.size),
           .lse_HT = DeviceView<A, 2>("lse", problem.heads, rows),
           .delta_HT = DeviceView<A, 2>("delta", problem.heads, rows)},
          std::vector<bool>(layout.chunks.size(), false),
          std::vector<bool>(layout.chunks.size(), false)};
}

/// Queries of one chunk of a rank and keys of one chunk of another.
inline AttentionShape shape_of(const Problem& problem, const Layout& queries,
                               std::size_t q_chunk, const Layout& keys,
                               std::size_t k_chunk) {
  const Index size = queries.chunks[q_chunk].size;
  return {.batch = problem.batch,
          .queries = size,
          .keys = keys.chunks[k_chunk].size,
          .heads = problem.heads,
          .kv_heads = problem.kv_heads,
          .head_dim = problem.head_dim,
          .first_query = queries.first_row(q_chunk),
          .query_stride = queries.stride(),
          .first_key = keys.first_row(k_chunk),
          .key_stride = keys.stride(),
          .diagonal = queries.chunks[q_chunk].begin - keys.chunks[k_chunk].begin,
          .k_column = 0,
          .v_column = problem.kv_heads * problem.head_dim};
}

/// Calls body(rank of the queries, their chunk, rank of the keys, their chunk) for all
/// pairs that meet, in the order of a ring in which the keys travel upwards.
template <class T, class Body>
void for_each_piece(std::vector<Rank<T>>& ranks, const Body& body) {
  const std::size_t count = ranks.size();
  for (std::size_t step = 0; step < count; ++step) {
    for (std::size_t r = 0; r < count; ++r) {
      Rank<T>& other = ranks[(r + count - step) % count];
      for (std::size_t q = 0; q < ranks[r].layout.chunks.size(); ++q) {
        for (std::size_t k = 0; k < other.layout.chunks.size(); ++k) {
          if (other.layout.chunks[k].begin > ranks[r].layout.chunks[q].begin) continue;
          body(ranks[r], q, other, k);
        }
      }
    }
  }
}

/// The call for one piece: the arrays of the queries from one rank, of the keys from
/// another.
template <class T>
Arrays<T> arrays_of(const Rank<T>& queries, const Rank<T>& keys) {
  Arrays<T> arrays = queries.arrays;
  arrays.kv_UR = keys.arrays.kv_UR;
  arrays.dkv_UR = keys.arrays.dkv_UR;
  return arrays;
}

}  // namespace pleat::test
