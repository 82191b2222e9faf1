// SPDX-License-Identifier: Apache-2.0
// Attention in pieces: queries and keys that come from two arrays, piece after piece,
// against the serial reference over the whole sequences.
#include "attention_ranks.hpp"
#include "pleat/base/copy.hpp"

namespace pleat::test {
namespace {

template <class T>
void forward_and_backward(const Problem& problem, Variant variant,
                          std::vector<Rank<T>>& ranks) {
  Arena scratch("test");
  const auto pieces_of = [](const Rank<T>& rank, std::size_t chunk) {
    return rank.has_queries_gradient[chunk] ? Pieces::kFurther : Pieces::kFirst;
  };
  for_each_piece(
      ranks, [&](Rank<T>& queries, std::size_t q, Rank<T>& keys, std::size_t k) {
        run_forward<T>(variant, shape_of(problem, queries.layout, q, keys.layout, k),
                       pieces_of(queries, q), arrays_of(queries, keys), scratch);
        queries.has_queries_gradient[q] = true;
      });
  for (Rank<T>& rank : ranks) {
    rank.has_queries_gradient.assign(rank.layout.chunks.size(), false);
    kernels::attention_delta<T>(ExecSpace(), problem.heads, problem.head_dim,
                                rank.arrays.o_TO, rank.arrays.do_TO,
                                rank.arrays.delta_HT);
  }
  for_each_piece(
      ranks, [&](Rank<T>& queries, std::size_t q, Rank<T>& keys, std::size_t k) {
        run_backward<T>(variant, shape_of(problem, queries.layout, q, keys.layout, k),
                        pieces_of(queries, q), keys.has_keys_gradient[k],
                        arrays_of(queries, keys), scratch);
        queries.has_queries_gradient[q] = true;
        keys.has_keys_gradient[k] = true;
      });
}

/// The ranks' results put together equal those of whole sequences.
template <class T>
void expect_whole(const Problem& problem, const std::vector<Rank<T>>& ranks,
                  double relative) {
  const Values qkv = qkv_of(problem), d_out = d_out_of(problem);
  const Columns q = query_columns(problem);
  const Forward expected = reference_forward(problem, qkv);
  Values o(expected.o.size()), lse(expected.lse.size()), gradient(qkv.size());
  for (const Rank<T>& rank : ranks) {
    const Layout& layout = rank.layout;
    scatter(layout, problem.sequence, to_host(rank.arrays.o_TO), o, q.size, q);
    scatter(layout, problem.sequence, to_host(rank.arrays.dq_TQ), gradient,
            problem.row_size(), q);
    scatter(layout, problem.sequence, to_host(rank.arrays.dkv_UR), gradient,
            problem.row_size(), key_value_columns(problem));
    const Values local = to_host(rank.arrays.lse_HT);
    for_each_row(layout, problem.sequence, [&](Index row, Index token) {
      for (Index h = 0; h < problem.heads; ++h) {
        lse[h * problem.tokens() + token] = local[h * layout.rows() + row];
      }
    });
  }
  expect_close(o, expected.o, relative, "o: " + describe(problem));
  expect_close(lse, expected.lse, relative, "lse: " + describe(problem));
  expect_close(gradient, reference_backward(problem, qkv, d_out), relative,
               "gradient: " + describe(problem));
}

/// Balanced: rank r of n holds chunks r and 2 n - 1 - r, and those may differ in size by
/// one.
std::vector<Layout> balanced(const Problem& problem, Index ranks, Index lead, Index gap) {
  const auto chunk = [&](Index c) {
    const Index begin = problem.sequence * c / (2 * ranks);
    return Chunk{begin, problem.sequence * (c + 1) / (2 * ranks) - begin};
  };
  std::vector<Layout> layouts;
  for (Index r = 0; r < ranks; ++r) {
    layouts.push_back({problem.batch, {chunk(r), chunk(2 * ranks - 1 - r)}, lead, gap});
  }
  return layouts;
}

template <class T>
double piece_tolerance() {
  // In bf16 each piece rounds what the earlier ones have summed.
  if constexpr (std::is_same_v<T, Bf16>) return 4.0 * tolerance<T>();
  return std::is_same_v<T, double> ? 1.0e-12 : 2.0e-5;
}

template <class T>
void expect_pieces(const Problem& problem, const std::vector<Layout>& layouts) {
  const Values qkv = qkv_of(problem), d_out = d_out_of(problem);
  for (const Variant variant : variants()) {
    std::vector<Rank<T>> ranks;
    for (const Layout& layout : layouts) {
      ranks.push_back(make_rank<T>(problem, layout, qkv, d_out));
    }
    forward_and_backward<T>(problem, variant, ranks);
    expect_whole<T>(problem, ranks, piece_tolerance<T>());
  }
}

template <class T>
class AttentionPieces : public testing::Test {};
TYPED_TEST_SUITE(AttentionPieces, Storages);

TYPED_TEST(AttentionPieces, BalancedChunksInARing) {
  for (const Index ranks : {1, 2, 3}) {
    for (const Problem& problem :
         {Problem{2, 24, 4, 2, 8}, Problem{1, 67, 2, 1, 16}, Problem{3, 151, 2, 2, 8},
          Problem{1, 100, 3, 1, 64}, Problem{1, 25, 2, 1, 256}}) {
      expect_pieces<TypeParam>(problem, balanced(problem, ranks, 0, 0));
    }
  }
}

TYPED_TEST(AttentionPieces, ChunksLongerThanTheTiles) {
  for (const Index ranks : {1, 2}) {
    const Problem problem{1, 603, 2, 1, 8};
    expect_pieces<TypeParam>(problem, balanced(problem, ranks, 0, 0));
  }
}

TYPED_TEST(AttentionPieces, SequencesApartFromEachOther) {
  const Problem problem{3, 70, 4, 2, 16};
  expect_pieces<TypeParam>(problem, balanced(problem, 2, 5, 3));
}

/// The rows of a layout equal those of the whole tensor, and its other rows are
/// untouched.
template <class T>
void expect_rows(const DeviceView<T, 2>& actual, const Layout& layout, Index sequence,
                 const Values& all, Index row_size, const Columns& columns) {
  Values expected = gather(layout, sequence, all, row_size, columns);
  Values values = to_host(actual);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (expected[i] != kUnused) continue;
    ASSERT_EQ(values[i], kUnused);
    values[i] = expected[i] = 0.0;  // would set the scale of the comparison
  }
  expect_close(values, expected, piece_tolerance<T>(), "rows");
}

/// One call: a chunk of queries and the first `keys` keys.
template <class T>
void expect_prefix(const Problem& problem, const Chunk& queries, Index keys) {
  const Layout q_layout{problem.batch, {queries}, 2, 1};
  const Layout k_layout{problem.batch, {{0, keys}}, 0, 4};
  const Columns out = query_columns(problem);
  const Index sequence = problem.sequence, row_size = problem.row_size();
  // Only these queries carry a gradient.
  Values d_out(problem.tokens() * out.size, 0.0);
  scatter(q_layout, sequence,
          gather(q_layout, sequence, d_out_of(problem), out.size, out), d_out, out.size,
          out);
  const Values qkv = qkv_of(problem);
  const Values o = reference_forward(problem, qkv).o;
  const Values gradient = reference_backward(problem, qkv, d_out);
  for (const Variant variant : variants()) {
    SCOPED_TRACE(describe(problem));
    const Arrays<T> arrays = arrays_of(make_rank<T>(problem, q_layout, qkv, d_out),
                                       make_rank<T>(problem, k_layout, qkv, d_out));
    const AttentionShape shape = shape_of(problem, q_layout, 0, k_layout, 0);
    Arena scratch("test");
    run_forward<T>(variant, shape, Pieces::kFirst, arrays, scratch);
    kernels::attention_delta<T>(ExecSpace(), problem.heads, problem.head_dim, arrays.o_TO,
                                arrays.do_TO, arrays.delta_HT);
    run_backward<T>(variant, shape, Pieces::kFirst, false, arrays, scratch);
    expect_rows<T>(arrays.o_TO, q_layout, sequence, o, out.size, out);
    expect_rows<T>(arrays.dq_TQ, q_layout, sequence, gradient, row_size, out);
    // Keys that no query sees get 0 over what was there.
    expect_rows<T>(arrays.dkv_UR, k_layout, sequence, gradient, row_size,
                   key_value_columns(problem));
  }
}

// The keys end with the last query's, or go on; the diagonal is nowhere near a tile's
// edge.
TYPED_TEST(AttentionPieces, QueriesAgainstAPrefixOfTheKeys) {
  for (const Problem& problem :
       {Problem{2, 37, 4, 2, 8}, Problem{1, 203, 2, 1, 16}, Problem{2, 401, 1, 1, 8}}) {
    for (const Index begin : {Index{0}, Index{1}, problem.sequence / 3}) {
      const Chunk queries{begin, problem.sequence / 2};
      expect_prefix<TypeParam>(problem, queries, queries.begin + queries.size);
      expect_prefix<TypeParam>(problem, queries, problem.sequence);
    }
  }
}

/// One rank with everything, and what its gradients are.
struct Whole {
  Problem problem{2, 75, 4, 2, 8};
  Rank<double> rank = make_rank<double>(problem, {problem.batch, {{0, problem.sequence}}},
                                        qkv_of(problem), d_out_of(problem));
  AttentionShape shape = shape_of(problem, rank.layout, 0, rank.layout, 0);
  Arena scratch{"test"};

  void forward(Variant variant) {
    run_forward<double>(variant, shape, Pieces::kFirst, rank.arrays, scratch);
    kernels::attention_delta<double>(ExecSpace(), problem.heads, problem.head_dim,
                                     rank.arrays.o_TO, rank.arrays.do_TO,
                                     rank.arrays.delta_HT);
  }
  void backward(Variant variant, Pieces pieces, bool accumulate_keys) {
    run_backward<double>(variant, shape, pieces, accumulate_keys, rank.arrays, scratch);
  }
};

TEST(AttentionGradients, OverwriteOrAccumulate) {
  for (const Variant variant : variants()) {
    Whole whole;
    whole.forward(variant);
    whole.backward(variant, Pieces::kFirst, false);
    const Values dq = to_host(whole.rank.arrays.dq_TQ);
    const Values dkv = to_host(whole.rank.arrays.dkv_UR);
    const auto doubled = [](Values values) {
      for (double& value : values) value *= 2.0;
      return values;
    };
    // The same bits where one kernel does all of it.
    const double relative = kByProducts && variant == Variant::kProgram ? 1.0e-13 : 0.0;
    whole.backward(variant, Pieces::kFurther, false);
    expect_close(to_host(whole.rank.arrays.dq_TQ), doubled(dq), 1.0e-13, "dq twice");
    expect_close(to_host(whole.rank.arrays.dkv_UR), dkv, relative, "dkv overwritten");
    whole.backward(variant, Pieces::kFirst, true);
    expect_close(to_host(whole.rank.arrays.dq_TQ), dq, relative, "dq overwritten");
    expect_close(to_host(whole.rank.arrays.dkv_UR), doubled(dkv), 1.0e-13, "dkv twice");
  }
}

TEST(AttentionGradients, WithoutQueriesTheKeysGetZero) {
  for (const Variant variant : variants()) {
    Whole whole;
    whole.forward(variant);
    whole.shape.queries = 0;
    whole.backward(variant, Pieces::kFirst, false);
    const Values zeros(whole.rank.arrays.dkv_UR.size(), 0.0);
    expect_same(to_host(whole.rank.arrays.dkv_UR), zeros, "dkv");
    fill_tensor(whole.rank.arrays.dkv_UR, 3.0);
    whole.backward(variant, Pieces::kFirst, true);
    expect_same(to_host(whole.rank.arrays.dkv_UR), Values(zeros.size(), 3.0), "dkv kept");
  }
}

TEST(AttentionDiagonal, AllKeysForAnyLargeOne) {
  for (const Variant variant : {Variant::kProgram, Variant::kPortable}) {
    Values first;
    for (const Index diagonal : {Index{74}, Index{75}, Index{1} << 20}) {
      Whole whole;
      whole.shape.diagonal = diagonal;
      whole.forward(variant);
      const Values o = to_host(whole.rank.arrays.o_TO);
      if (first.empty()) first = o;
      expect_same(o, first, "o");
    }
  }
  Whole whole;
  whole.shape.diagonal = std::numeric_limits<Index>::max();
  whole.forward(Variant::kProgram);
  for (const double x : to_host(whole.rank.arrays.o_TO)) ASSERT_TRUE(std::isfinite(x));
}

TEST(AttentionPiecesCheck, RefusesWhatHasNoMeaning) {
  const auto refuses = [](void (*change)(AttentionShape&)) {
    Whole whole;
    change(whole.shape);
    EXPECT_THROW(whole.forward(Variant::kProgram), InternalError);
    EXPECT_THROW(whole.backward(Variant::kProgram, Pieces::kFirst, false), InternalError);
  };
  refuses([](AttentionShape& shape) { shape.diagonal = -1; });
  refuses([](AttentionShape& shape) { shape.keys = 0; });
  refuses([](AttentionShape& shape) { shape.kv_heads = 3; });
  refuses([](AttentionShape& shape) { shape.query_stride = shape.queries - 1; });
  refuses([](AttentionShape& shape) { shape.first_key = 1; });
  refuses([](AttentionShape& shape) { shape.first_query = 1; });
  refuses([](AttentionShape& shape) { shape.v_column += 1; });
}

}  // namespace
}  // namespace pleat::test
