// SPDX-License-Identifier: Apache-2.0
//
// Every dispatcher gives an expert the rows, and a token the sum, that one rank with all
// tokens of the ep*etp group gives it.
#include <array>

#include <gtest/gtest.h>

#include "dispatch/planned_dispatch.hpp"
#include "pleat/base/error.hpp"

namespace pleat::test {
namespace {

Values as_values(const Integers& integers) {
  return Values(integers.begin(), integers.end());
}

/// \brief What comes back for this rank's tokens.
struct ExpectedSums {
  Values y, dweight;
};
ExpectedSums expected_sums(const DispatchCase& reference) {
  const auto& shape = reference.shape();
  return {reference.of_own_tokens(
              reference.combined(reference.summed_values(shape.hidden)), shape.hidden),
          reference.of_own_tokens(reference.returned(reference.summed_values(1)),
                                  shape.choices)};
}

using Dispatch = OverAllDegrees;

TEST_F(Dispatch, BringsTheRowsOfOneRank) {
  const auto body = [](const comm::Grid& grid, const DispatchCase& reference,
                       DispatcherKind kind) {
    Planned<double> planned(grid, reference, kind);
    ASSERT_EQ(planned.record.host_offsets, reference.offsets());
    ASSERT_EQ(planned.record.rows, reference.offsets().back());
    expect_same(to_host(planned.record.offsets_L1), as_values(reference.offsets()),
                "offsets_L1");
    expect_same(
        planned.dispatch(reference.own().x),
        reference.at_own_experts(reference.dispatched(), reference.shape().hidden),
        "x_RD");
    expect_same(planned.dispatch_weights(reference.own().weight),
                reference.at_own_experts(reference.dispatched_weights(), 1), "weight_R");
  };
  for_each_case(body, routings());
}

TEST_F(Dispatch, ReturnsTheSumsOfOneRank) {
  const auto body = [](const comm::Grid& grid, const DispatchCase& reference,
                       DispatcherKind kind) {
    Planned<double> planned(grid, reference, kind);
    const ExpectedSums expected = expected_sums(reference);
    // Sums over the choices in their order, and nothing else: the same bits.
    const bool exact =
        kind == DispatcherKind::kAllToAll && grid.degree(comm::Axis::kExpertTensor) == 1;
    expect_close(planned.combine(own_values(grid, reference, reference.shape().hidden)),
                 expected.y, exact ? 0.0 : 1.0e-14, "y_TD");
    expect_close(planned.return_weights(own_values(grid, reference, 1)), expected.dweight,
                 1.0e-14, "dweight_TK");
  };
  for_each_case(body, routings());
}

TEST_F(Dispatch, SinglePrecision) {
  const auto body = [](const comm::Grid& grid, const DispatchCase& reference,
                       DispatcherKind kind) {
    const Index hidden = reference.shape().hidden;
    Planned<float> planned(grid, reference, kind);
    expect_same(planned.dispatch(reference.own().x),
                reference.at_own_experts(reference.dispatched(), hidden), "x_RD");
    expect_same(planned.dispatch_weights(reference.own().weight),
                reference.at_own_experts(reference.dispatched_weights(), 1), "weight_R");
    const ExpectedSums expected = expected_sums(reference);
    expect_close(planned.combine(own_values(grid, reference, hidden)), expected.y,
                 tolerance<float>(), "y_TD");
    expect_close(planned.return_weights(own_values(grid, reference, 1)), expected.dweight,
                 tolerance<float>(), "dweight_TK");
  };
  for_each_case(body, {Routing::kHoles});
}

TEST_F(Dispatch, CombineIsTheTransposeOfDispatch) {
  const auto body = [](const comm::Grid& grid, const DispatchCase& reference,
                       DispatcherKind kind) {
    Planned<double> planned(grid, reference, kind);
    const Values y = own_values(grid, reference, reference.shape().hidden);
    const Values dweight = own_values(grid, reference, 1);
    const RankTokens& own = reference.own();
    const HostView<double, 1> products("products", 4);
    products(0) = dot(planned.dispatch(own.x), y);
    products(1) = dot(own.x, planned.combine(y));
    products(2) = dot(planned.dispatch_weights(own.weight), dweight);
    products(3) = dot(own.weight, planned.return_weights(dweight));
    grid.group(comm::GroupName::kWorld).all_reduce(products, comm::Reduction::kSum);
    EXPECT_NE(products(0), 0.0);
    EXPECT_NEAR(products(0), products(1), 1.0e-12 * std::abs(products(0)));
    EXPECT_NEAR(products(2), products(3), 1.0e-12 * std::abs(products(2)));
  };
  for_each_case(body, {Routing::kHoles, Routing::kEmptyExpert});
}

TEST_F(Dispatch, MeanwhileRunsOnceWithinEachExchange) {
  const auto body = [](const comm::Grid& grid, const DispatchCase& reference,
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
  };
  for_each_case(body, {Routing::kFull});
}

TEST_F(Dispatch, ALaterStepAllocatesNothing) {
  const auto body = [](const comm::Grid& grid, const DispatchCase& reference,
                       DispatcherKind kind) {
    Planned<double> planned(grid, reference, kind);
    const Values y = own_values(grid, reference, reference.shape().hidden);
    const Values dweight = own_values(grid, reference, 1);
    const auto step = [&] {
      planned.saved.reset({});
      planned.plan();
      planned.dispatch(reference.own().x);
      planned.dispatch_weights(reference.own().weight);
      planned.return_weights(dweight);
      return planned.combine(y);
    };
    const Values first = step();
    const auto saved = planned.saved.allocations();
    const auto scratch = planned.scratch.allocations();
    // The second plan overwrites the record.
    expect_same(step(), first, "y_TD");
    EXPECT_EQ(planned.saved.allocations(), saved);
    EXPECT_EQ(planned.scratch.allocations(), scratch);
  };
  // Large enough for a step to need several chunks of an arena.
  for_each_case(body, {Routing::kHoles},
                {.tokens = 200, .choices = 4, .experts = 8, .hidden = 100});
}

TEST_F(Dispatch, NoTokensAtAll) {
  const auto body = [](const comm::Grid& grid, const DispatchCase& reference,
                       DispatcherKind kind) {
    Planned<double> planned(grid, reference, kind);
    EXPECT_EQ(planned.record.rows, 0);
    EXPECT_TRUE(planned.dispatch({}).empty());
    EXPECT_TRUE(planned.combine({}).empty());
    EXPECT_TRUE(planned.return_weights({}).empty());
  };
  for_each_case(body, {Routing::kFull}, {.tokens = 0});
}

TEST_F(Dispatch, UnequalNumbersOfTokensAreAnError) {
  for (const auto& grid : grids()) {
    const comm::Communicator& group = grid->group(comm::GroupName::kDispatch);
    if (group.size() == 1) continue;
    DispatchShape shape;
    if (group.rank() == 1) shape.tokens += 1;
    const DispatchCase reference(*grid, shape, Routing::kFull);
    for (const DispatcherKind kind : kKinds) {
      EXPECT_THROW((Planned<double>(*grid, reference, kind)), InternalError);
    }
  }
}

/// \brief The example of docs/dispatcher.md: four ranks, ep 2, etp 2, four experts, two
/// tokens on each rank with one expert each. Tokens are letters.
TEST_F(Dispatch, WorkedExampleOfTheDocument) {
  for (const auto& grid : grids()) {
    if (grid->degree(comm::Axis::kExpert) != 2) continue;
    if (grid->degree(comm::Axis::kExpertTensor) != 2) continue;
    if (grid->rank() >= 4) continue;
    const auto rank = static_cast<std::size_t>(grid->rank());
    const Integers index =
        std::array<Integers, 4>{{{2, 0}, {1, 0}, {0, 3}, {3, 1}}}[rank];
    const Values x =
        std::array<Values, 4>{{{'a', 'b'}, {'c', 'd'}, {'e', 'f'}, {'g', 'h'}}}[rank];
    const auto dispatcher =
        model::make_dispatcher<double>(DispatcherKind::kAllToAll, 4, *grid);
    Arena saved("saved"), scratch("scratch");
    model::DispatchRecord record;
    dispatcher->plan(ExecSpace(), to_device<std::int32_t>(index, 2, 1), saved, scratch,
                     record);
    const DeviceView<double, 2> x_RD("x_RD", record.rows, 1);
    dispatcher->dispatch(ExecSpace(), record, to_device<double>(x, 2, 1), scratch, x_RD);

    using Rows = std::vector<std::int64_t>;
    const bool first = rank < 2;  // the first rank of the expert axis
    EXPECT_EQ(record.sent_rows,
              (std::array<Rows, 4>{{{1, 1}, {2, 0}, {1, 1}, {1, 1}}}[rank]));
    EXPECT_EQ(record.received_rows,
              (std::array<Rows, 4>{{{1, 1}, {2, 1}, {1, 1}, {0, 1}}}[rank]));
    EXPECT_EQ(record.gathered_rows, first ? (Rows{2, 3}) : (Rows{2, 1}));
    expect_same(to_host(record.sorted_R), first ? Values{0, 2, 1, 3, 4} : Values{0, 1, 2},
                "sorted_R");
    EXPECT_EQ(record.host_offsets, first ? (Rows{0, 3, 5}) : (Rows{0, 1, 3}));
    expect_same(to_host(x_RD),
                first ? Values{'b', 'd', 'e', 'c', 'h'} : Values{'a', 'f', 'g'}, "x_RD");
  }
}

}  // namespace
}  // namespace pleat::test
