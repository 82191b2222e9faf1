// SPDX-License-Identifier: Apache-2.0
//
// Every dispatcher gives an expert the rows, and a token the sum, that one rank with all
// tokens of the ep*etp group gives it.
#include <gtest/gtest.h>

#include "dispatch/planned_dispatch.hpp"
#include "pleat/base/error.hpp"

namespace pleat::test {
namespace {

Values as_values(const Integers& integers) { return Values(integers.begin(), integers.end()); }

template <class T>
class Dispatch : public testing::Test {};
TYPED_TEST_SUITE(Dispatch, Scalars);

TYPED_TEST(Dispatch, BringsTheRowsOfOneRank) {
  for_each_case([](const comm::Grid& grid, const DispatchCase& reference,
                   DispatcherKind kind) {
    const Index hidden = reference.shape().hidden;
    Planned<TypeParam> planned(grid, reference, kind);
    ASSERT_EQ(planned.record.host_offsets, reference.offsets());
    ASSERT_EQ(planned.record.rows, reference.offsets().back());
    expect_same(to_host(planned.record.offsets_L1), as_values(reference.offsets()),
                "offsets_L1");
    expect_same(planned.dispatch(reference.own().x),
                reference.at_own_experts(reference.dispatched(), hidden), "x_RD");
    expect_same(planned.dispatch_weights(reference.own().weight),
                reference.at_own_experts(reference.dispatched_weights(), 1), "weight_R");
  });
}

TYPED_TEST(Dispatch, ReturnsTheSumsOfOneRank) {
  using T = TypeParam;
  const double bound = std::is_same_v<T, double> ? 1.0e-14 : 1.0e-6;
  for_each_case([bound](const comm::Grid& grid, const DispatchCase& reference,
                        DispatcherKind kind) {
    const Index hidden = reference.shape().hidden;
    Planned<T> planned(grid, reference, kind);
    const Values sums = planned.combine(own_values(grid, reference, hidden));
    const Values expected = reference.of_own_tokens(
        reference.combined(reference.summed_values(hidden)), hidden);
    // A sum over the choices in their order, and nothing else: the same bits.
    const bool exact = kind == DispatcherKind::kAllToAll && std::is_same_v<T, double> &&
                       grid.degree(comm::Axis::kExpertTensor) == 1;
    expect_close(sums, expected, exact ? 0.0 : bound, "y_TD");
    const Values weights = planned.return_weights(own_values(grid, reference, 1));
    expect_close(
        weights,
        reference.of_own_tokens(reference.returned(reference.summed_values(1)),
                                reference.shape().choices),
        bound, "dweight_TK");
  });
}

TEST(DispatchOrder, BothDispatchersGiveTheSameBits) {
  for (const auto& degrees : all_degrees()) {
    const comm::Grid grid = make_grid(degrees);
    const DispatchCase reference(grid, {}, Routing::kHoles);
    Planned<double> one(grid, reference, DispatcherKind::kAllToAll);
    Planned<double> other(grid, reference, DispatcherKind::kAllGather);
    expect_same(one.dispatch(reference.own().x), other.dispatch(reference.own().x), "x_RD");
    expect_same(one.dispatch_weights(reference.own().weight),
                other.dispatch_weights(reference.own().weight), "weight_R");
  }
}

TEST(DispatchAdjoint, CombineIsTheTransposeOfDispatch) {
  for_each_case([](const comm::Grid& grid, const DispatchCase& reference,
                   DispatcherKind kind) {
    Planned<double> planned(grid, reference, kind);
    const Values y = own_values(grid, reference, reference.shape().hidden);
    const Values dweight = own_values(grid, reference, 1);
    const RankTokens& own = reference.own();
    comm::Communicator& world = grid.group(comm::GroupName::kWorld);
    const auto sum = [&](double value) {
      return world.all_reduce_value(value, comm::Reduction::kSum);
    };
    const double rows = sum(dot(planned.dispatch(own.x), y));
    const double tokens = sum(dot(own.x, planned.combine(y)));
    EXPECT_NEAR(rows, tokens, 1.0e-11 * std::max(1.0, std::abs(rows)));
    const double weight_rows = sum(dot(planned.dispatch_weights(own.weight), dweight));
    const double weight_tokens = sum(dot(own.weight, planned.return_weights(dweight)));
    EXPECT_NEAR(weight_rows, weight_tokens, 1.0e-11 * std::max(1.0, std::abs(weight_rows)));
  });
}

TEST(DispatchMeanwhile, RunsOnceWithinEachExchange) {
  for_each_case([](const comm::Grid& grid, const DispatchCase& reference,
                   DispatcherKind kind) {
    Planned<double> planned(grid, reference, kind);
    int runs = 0;
    // It may use the same scratch memory, as long as it gives it back.
    const model::Meanwhile meanwhile = [&] {
      const ArenaScope scope(planned.scratch);
      Kokkos::deep_copy(planned.exec, planned.scratch.take<double>(1000), -1.0);
      ++runs;
    };
    const Values y = own_values(grid, reference, reference.shape().hidden);
    expect_same(planned.dispatch(reference.own().x, meanwhile),
                planned.dispatch(reference.own().x), "x_RD");
    EXPECT_EQ(runs, 1);
    expect_same(planned.combine(y, meanwhile), planned.combine(y), "y_TD");
    EXPECT_EQ(runs, 2);
  });
}

TEST(DispatchMemory, ALaterStepAllocatesNothing) {
  // Large enough for a step to need several chunks of an arena.
  const DispatchShape shape{.tokens = 300, .choices = 4, .experts = 8, .hidden = 200};
  for (const auto& degrees : all_degrees()) {
    const comm::Grid grid = make_grid(degrees);
    const DispatchCase reference(grid, shape, Routing::kHoles);
    for (const DispatcherKind kind : kKinds) {
      Planned<double> planned(grid, reference, kind);
      const auto step = [&] {
        planned.saved.reset({});
        planned.plan();
        const Values y = planned.dispatch(reference.own().x);
        planned.dispatch_weights(reference.own().weight);
        planned.return_weights(own_values(grid, reference, 1));
        return planned.combine(y);
      };
      const Values first = step();
      const auto saved = planned.saved.allocations();
      const auto scratch = planned.scratch.allocations();
      // The record is overwritten by the second plan.
      expect_same(step(), first, "y_TD");
      EXPECT_EQ(planned.saved.allocations(), saved);
      EXPECT_EQ(planned.scratch.allocations(), scratch);
    }
  }
}

TEST(DispatchTokens, NoTokensAtAll) {
  for_each_case(
      [](const comm::Grid& grid, const DispatchCase& reference, DispatcherKind kind) {
        Planned<double> planned(grid, reference, kind);
        EXPECT_EQ(planned.record.rows, 0);
        EXPECT_TRUE(planned.dispatch({}).empty());
        EXPECT_TRUE(planned.combine({}).empty());
        EXPECT_TRUE(planned.return_weights({}).empty());
      },
      {.tokens = 0});
}

TEST(DispatchTokens, UnequalNumbersOfTokensAreAnError) {
  for (const auto& degrees : all_degrees()) {
    const comm::Grid grid = make_grid(degrees);
    comm::Communicator& group = grid.group(comm::GroupName::kDispatch);
    if (group.size() == 1) continue;
    DispatchShape shape;
    if (group.rank() == 1) shape.tokens += 1;
    const DispatchCase reference(grid, shape, Routing::kFull);
    for (const DispatcherKind kind : kKinds) {
      EXPECT_THROW((Planned<double>(grid, reference, kind)), InternalError);
    }
  }
}

}  // namespace
}  // namespace pleat::test
