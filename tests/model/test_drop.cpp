// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>

#include "kernels/reference.hpp"
#include "pleat/model/drop.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

using plan::DropPolicy;
using plan::DropScope;

// B sequences of L tokens in all, E experts, K per token.
constexpr Index kB = 3, kL = 16, kE = 4, kK = 2;

plan::MoeConfig moe_with(DropScope scope, DropPolicy policy, double factor) {
  plan::MoeConfig moe;
  moe.experts = kE;
  moe.top_k = kK;
  moe.drop = {factor, scope, policy, false};
  return moe;
}

std::vector<std::tuple<Index, Index>> context_and_tensor(Index ranks) {
  std::vector<std::tuple<Index, Index>> all;
  for (Index context = 1; context <= ranks; context *= 2) {
    if (ranks % context == 0) all.emplace_back(context, ranks / context);
  }
  return all;
}

/// \brief The places in [sequence, position] of the rows that a rank holds, row by row.
std::vector<Index> places(Index context, Index tensor, Index context_rank,
                          Index tensor_rank) {
  std::vector<Index> held;
  const Index piece = kL / (2 * context);
  for (Index b = 0; b < kB; ++b) {
    for (const Index chunk : {context_rank, 2 * context - 1 - context_rank}) {
      for (Index i = 0; i < piece; ++i) held.push_back(b * kL + chunk * piece + i);
    }
  }
  const Index rows = static_cast<Index>(held.size()) / tensor;
  return {held.begin() + tensor_rank * rows, held.begin() + (tensor_rank + 1) * rows};
}

/// \brief All tokens' choices and weights, the same on every rank: expert 0 is wanted
/// most; every seventh token is padding; few distinct weights.
struct Choices {
  Values index, weight;
};

Choices all_choices() {
  Choices choices;
  const Values draw = random_values(kB * kL * kK, 1);
  for (Index t = 0; t < kB * kL; ++t) {
    for (Index k = 0; k < kK; ++k) {
      const Index e = k == 0 ? (t % 3 == 0 ? t % kE : 0) : 1 + (t % (kE - 1));
      const bool distinct = k == 0 || choices.index.back() != static_cast<double>(e);
      choices.index.push_back(
          t % 7 == 5 ? -1.0 : static_cast<double>(distinct ? e : kE - 1 - e));
      const double level = std::abs(draw[static_cast<std::size_t>(t * kK + k)]);
      choices.weight.push_back(std::floor(2.0 * std::min(level, 3.0)) / 8.0);
    }
  }
  return choices;
}

/// \brief Of the pairs of the given places, the ones that their expert takes, by a sort
/// per expert.
Values taken(const plan::MoeConfig& moe, const Choices& choices,
             const std::vector<Index>& unit) {
  Values sent(choices.index.size(), -1.0);
  const double exact = static_cast<double>(static_cast<Index>(unit.size()) * kK) /
                       static_cast<double>(kE) * moe.drop.capacity_factor;
  for (Index e = 0; e < kE; ++e) {
    std::vector<std::tuple<double, Index>> pairs;
    for (const Index place : unit) {
      for (Index pair = place * kK; pair < (place + 1) * kK; ++pair) {
        const auto i = static_cast<std::size_t>(pair);
        if (choices.index[i] != static_cast<double>(e)) continue;
        const bool by_weight = moe.drop.policy == DropPolicy::kProbs;
        pairs.emplace_back(by_weight ? -choices.weight[i] : 0.0, pair);
      }
    }
    std::sort(pairs.begin(), pairs.end());
    pairs.resize(std::min(pairs.size(), static_cast<std::size_t>(std::ceil(exact))));
    for (const auto& [key, pair] : pairs) {
      sent[static_cast<std::size_t>(pair)] = static_cast<double>(e);
    }
  }
  return sent;
}

/// \brief What a rank with those places must send.
Values expected_of(const plan::MoeConfig& moe, const Choices& choices,
                   const std::vector<Index>& own) {
  Values sent(own.size() * kK, -1.0);
  for (Index b = 0; b < kB; ++b) {
    std::vector<Index> unit;
    if (moe.drop.scope == DropScope::kSequence) {
      for (Index p = 0; p < kL; ++p) unit.push_back(b * kL + p);
    } else {
      for (const Index place : own) {
        if (place / kL == b) unit.push_back(place);
      }
    }
    const Values taken_here = taken(moe, choices, unit);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      if (own[i / kK] / kL != b) continue;
      sent[i] = taken_here[static_cast<std::size_t>(own[i / kK]) * kK + i % kK];
    }
  }
  return sent;
}

model::MicroBatch batch_of(Index context, Index tensor, Index tensor_rank) {
  model::MicroBatch batch;
  batch.sequences = kB;
  batch.sequence = kL / context;
  const Index rows = batch.gathered_tokens() / tensor;
  batch.first_row = tensor_rank * rows;
  batch.real_T = to_device<std::uint8_t>(Values(static_cast<std::size_t>(rows)), rows);
  return batch;
}

/// \brief drop_over_capacity on this rank of the grid.
template <class T>
Values drop(const comm::Grid& grid, const plan::MoeConfig& moe, const Choices& choices) {
  const Index context = grid.degree(comm::Axis::kContext);
  const Index tensor = grid.degree(comm::Axis::kTensor);
  const Index tensor_rank = grid.coordinate(comm::Axis::kTensor);
  Values index, weight;
  const std::vector<Index> own =
      places(context, tensor, grid.coordinate(comm::Axis::kContext), tensor_rank);
  for (const Index place : own) {
    for (Index pair = place * kK; pair < (place + 1) * kK; ++pair) {
      index.push_back(choices.index[static_cast<std::size_t>(pair)]);
      weight.push_back(choices.weight[static_cast<std::size_t>(pair)]);
    }
  }
  const ExecSpace exec;
  Arena saved("saved"), scratch("scratch");
  PhaseTimes times;
  const model::Context model_context{exec, grid, saved, saved, scratch, times};
  const auto rows = static_cast<Index>(own.size());
  const auto sent_TK = to_device<std::int32_t>(Values(index.size(), 9.0), rows, kK);
  model::drop_over_capacity<T>(model_context, moe, batch_of(context, tensor, tensor_rank),
                               to_device<std::int32_t>(index, rows, kK),
                               to_device<T>(weight, rows, kK), sent_TK);
  EXPECT_EQ(expected_of(moe, choices, own), to_host(sent_TK));
  return to_host(sent_TK);
}

template <class T>
class Drop : public testing::Test {};
TYPED_TEST_SUITE(Drop, Scalars);

TYPED_TEST(Drop, EqualsASortOnEveryMapping) {
  const auto world = comm::make_mpi_communicator(test::world());
  for (const auto& [context, tensor] : context_and_tensor(world->size())) {
    const comm::Grid grid(test::world(), {{1, context, tensor, 1, 1}, world->size()});
    for (const DropScope scope : {DropScope::kSubSequence, DropScope::kSequence}) {
      for (const DropPolicy policy : {DropPolicy::kProbs, DropPolicy::kPosition}) {
        for (const double factor : {0.2, 0.8, 1.0, 9.0}) {
          const auto moe = moe_with(scope, policy, factor);
          drop<TypeParam>(grid, moe, all_choices());
        }
      }
    }
  }
}

/// \brief Rows that each expert gets at most, counted for a rank whose tokens all want
/// it.
TYPED_TEST(Drop, CapacityRowsAreReachedAndNeverPassed) {
  const auto world = comm::make_mpi_communicator(test::world());
  Choices greedy;
  for (Index pair = 0; pair < kB * kL * kK; ++pair) {
    greedy.index.push_back(pair % kK == 0 ? 0.0 : 1.0);
    greedy.weight.push_back(0.5);
  }
  for (const auto& [context, tensor] : context_and_tensor(world->size())) {
    const comm::Grid grid(test::world(), {{1, context, tensor, 1, 1}, world->size()});
    for (const double factor : {0.2, 0.8, 1.0, 9.0}) {
      const auto moe = moe_with(DropScope::kSubSequence, DropPolicy::kPosition, factor);
      const Values sent = drop<TypeParam>(grid, moe, greedy);
      const std::int64_t most = world->all_reduce_value(
          static_cast<std::int64_t>(std::count(sent.begin(), sent.end(), 0.0)),
          comm::Reduction::kMax);
      const auto batch = batch_of(context, tensor, grid.coordinate(comm::Axis::kTensor));
      EXPECT_EQ(model::capacity_rows(moe, batch, grid), most);
    }
  }
}

TEST(CapacityRows, HandWorked) {
  const comm::Grid grid;
  const auto batch = batch_of(1, 1, 0);
  for (const DropScope scope : {DropScope::kSubSequence, DropScope::kSequence}) {
    // Of each of 3 sequences ceil(16 2 / 4 1.3) = 11 rows, or all 16.
    EXPECT_EQ(model::capacity_rows(moe_with(scope, DropPolicy::kProbs, 1.3), batch, grid),
              33);
    EXPECT_EQ(model::capacity_rows(moe_with(scope, DropPolicy::kProbs, 9.0), batch, grid),
              48);
  }
  EXPECT_EQ(
      model::expert_capacity(moe_with(DropScope::kSequence, DropPolicy::kProbs, 1.3), 16),
      11);
}

// Capacity is that of all 16 positions, but a rank has no more rows than it holds.
TEST(CapacityRows, OfAWholeSequence) {
  const auto world = comm::make_mpi_communicator(test::world());
  const Index ranks = world->size();
  const comm::Grid grid(test::world(), {{1, ranks, 1, 1, 1}, ranks});
  const auto rows = [&](double factor) {
    const auto moe = moe_with(DropScope::kSequence, DropPolicy::kProbs, factor);
    return model::capacity_rows(moe, batch_of(ranks, 1, 0), grid);
  };
  EXPECT_EQ(rows(0.5), 3 * 4);
  EXPECT_EQ(rows(2.0), 3 * 16 / ranks);
}

TEST(PositionInSequence, OfTwoContextRanks) {
  const std::vector<std::vector<Index>> expected = {{0, 1, 6, 7}, {2, 3, 4, 5}};
  for (Index rank = 0; rank < 2; ++rank) {
    for (Index held = 0; held < 4; ++held) {
      EXPECT_EQ(model::position_in_sequence(held, 4, 2, rank),
                expected[static_cast<std::size_t>(rank)][static_cast<std::size_t>(held)]);
    }
    EXPECT_EQ(model::position_in_sequence(3, 5, 1, 0), 3);
  }
}

}  // namespace
}  // namespace pleat::test
