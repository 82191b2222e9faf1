// SPDX-License-Identifier: Apache-2.0
//
// What the communicators count is what docs/dispatcher.md says.
#include <gtest/gtest.h>

#include "dispatch/planned_dispatch.hpp"
#include "dispatch/traffic_formulas.hpp"

namespace pleat::test {
namespace {

using comm::Exchange;
using comm::GroupName;

constexpr double kDouble = sizeof(double);

double bytes(const comm::Grid& grid, GroupName group, Exchange exchange) {
  return grid.group(group).traffic().of(exchange).bytes;
}

/// \brief Rows of a source for the experts of a rank of the expert axis.
double rows_for(const DispatchCase& reference, Index source, Index expert_rank,
                Index expert_ranks) {
  const Index local = reference.shape().experts / expert_ranks;
  Index rows = 0;
  for (Index l = 0; l < local; ++l) rows += reference.rows(source, expert_rank * local + l);
  return static_cast<double>(rows);
}

TEST(DispatchTraffic, AllToAllSendsEachRowToItsExpert) {
  for (const auto& degrees : all_degrees()) {
    for (const Routing routing : kRoutings) {
      SCOPED_TRACE(describe(degrees, routing, DispatcherKind::kAllToAll));
      const comm::Grid grid = make_grid(degrees);
      const DispatchCase reference(grid, {}, routing);
      const Index ep = degrees.expert;
      const Index etp = degrees.expert_tensor;
      const auto& shape = reference.shape();
      const double row = static_cast<double>(shape.hidden) * kDouble;
      const Index me = grid.coordinate(comm::Axis::kExpert);
      const Index shard = grid.coordinate(comm::Axis::kExpertTensor);
      const auto of = [&](Index source, Index target) {
        return rows_for(reference, source, target, ep);
      };
      double away = 0.0, back = 0.0, received = 0.0, arrived = 0.0;
      for (Index q = 0; q < ep; ++q) {
        if (q != me) away += of(me * etp + shard, q);
        if (q != me) back += of(q * etp + shard, me);
        received += of(q * etp + shard, me);
        for (Index f = 0; f < etp; ++f) arrived += of(q * etp + f, me);
      }
      Planned<double> planned(grid, reference, DispatcherKind::kAllToAll);
      const double ranks = static_cast<double>(ep * etp);
      EXPECT_EQ(bytes(grid, GroupName::kDispatch, Exchange::kAllGather),
                (ranks - 1.0) * static_cast<double>(shape.experts + 1) * 8.0);
      planned.dispatch(reference.own().x);
      EXPECT_EQ(bytes(grid, GroupName::kExpert, Exchange::kAllToAll), away * row);
      EXPECT_EQ(bytes(grid, GroupName::kExpertTensor, Exchange::kAllGather),
                static_cast<double>(etp - 1) * received * row);
      planned.combine(own_values(grid, reference, shape.hidden));
      EXPECT_EQ(bytes(grid, GroupName::kExpert, Exchange::kAllToAll), (away + back) * row);
      EXPECT_EQ(bytes(grid, GroupName::kExpertTensor, Exchange::kReduceScatter),
                (arrived - received) * row);
    }
  }
}

TEST(DispatchTraffic, AllGatherSendsEachTokenToAll) {
  for (const auto& degrees : all_degrees()) {
    for (const Routing routing : {Routing::kFull, Routing::kHoles}) {
      const comm::Grid grid = make_grid(degrees);
      const DispatchCase reference(grid, {}, routing);
      if (reference.ranks() == 1) continue;
      const auto& shape = reference.shape();
      const auto others = static_cast<double>(reference.ranks() - 1);
      Planned<double> planned(grid, reference, DispatcherKind::kAllGather);
      // The number of tokens, and the choices.
      const double sizes = 8.0 + static_cast<double>(shape.tokens * shape.choices) * 4.0;
      EXPECT_EQ(bytes(grid, GroupName::kDispatch, Exchange::kAllGather), others * sizes);
      planned.dispatch(reference.own().x);
      const double tokens = static_cast<double>(shape.tokens * shape.hidden) * kDouble;
      EXPECT_EQ(bytes(grid, GroupName::kDispatch, Exchange::kAllGather),
                others * (sizes + tokens));
      planned.combine(own_values(grid, reference, shape.hidden));
      EXPECT_EQ(bytes(grid, GroupName::kDispatch, Exchange::kReduceScatter),
                others * tokens);
    }
  }
}

/// \brief Bytes that a balanced layer sends for one token, on average over the ranks: dispatch
/// and combine, without what plan() sends.
double counted(const comm::Grid& grid, DispatcherKind kind, const DispatchShape& shape) {
  const DispatchCase reference(grid, shape, Routing::kBalanced);
  Planned<double> planned(grid, reference, kind);
  double before = 0.0, after = 0.0;
  const auto add = [&](double& sum) {
    for (const GroupName group :
         {GroupName::kDispatch, GroupName::kExpert, GroupName::kExpertTensor}) {
      for (const auto& entry : grid.group(group).traffic().entries) sum += entry.bytes;
    }
  };
  add(before);
  planned.dispatch(reference.own().x);
  planned.combine(own_values(grid, reference, shape.hidden));
  add(after);
  comm::Communicator& world = grid.group(GroupName::kWorld);
  return world.all_reduce_value(after - before, comm::Reduction::kSum) /
         static_cast<double>(world.size() * shape.tokens);
}

TEST(DispatchTraffic, BalancedLayersSendWhatTheFormulasSay) {
  // Tokens times choices are a multiple of the experts: every expert gets as many rows.
  const DispatchShape shape{.tokens = 16, .choices = 3, .experts = 8, .hidden = 5};
  const TokenBytes formulas{static_cast<double>(shape.hidden), kDouble,
                            static_cast<double>(shape.choices)};
  for (const auto& degrees : all_degrees()) {
    const auto ep = static_cast<double>(degrees.expert);
    const auto etp = static_cast<double>(degrees.expert_tensor);
    EXPECT_DOUBLE_EQ(counted(make_grid(degrees), DispatcherKind::kAllToAll, shape),
                     formulas.experts(ep) + formulas.shards(etp));
    EXPECT_DOUBLE_EQ(counted(make_grid(degrees), DispatcherKind::kAllGather, shape),
                     formulas.gathered(ep * etp));
  }
}

}  // namespace
}  // namespace pleat::test
