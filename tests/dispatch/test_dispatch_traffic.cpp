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

/// \brief Bytes sent since this object was made.
class Sent {
 public:
  explicit Sent(const comm::Grid& grid) : grid_(grid), before_(grid.traffic()) {}

  double bytes(GroupName group, Exchange exchange) const {
    const auto& before = before_[static_cast<std::size_t>(group)].second;
    return grid_.group(group).traffic().of(exchange).bytes - before.of(exchange).bytes;
  }
  /// \brief Through the groups of the dispatchers.
  double all() const {
    double sum = 0.0;
    for (const GroupName group :
         {GroupName::kDispatch, GroupName::kExpert, GroupName::kExpertTensor}) {
      for (std::size_t i = 0; i < comm::kExchanges; ++i) {
        sum += bytes(group, static_cast<Exchange>(i));
      }
    }
    return sum;
  }

 private:
  const comm::Grid& grid_;
  std::vector<std::pair<std::string, comm::Traffic>> before_;
};

/// \brief Rows of a source for the experts of a rank of the expert axis.
double rows_for(const DispatchCase& reference, Index source, Index expert_rank,
                Index expert_ranks) {
  const Index local = reference.shape().experts / expert_ranks;
  Index rows = 0;
  for (Index l = 0; l < local; ++l)
    rows += reference.rows(source, expert_rank * local + l);
  return static_cast<double>(rows);
}

/// \brief What a rank sends away and keeps of an all-to-all layer, in rows.
struct RowCounts {
  double away = 0.0;      ///< to the experts of others
  double back = 0.0;      ///< results of the rows of others
  double received = 0.0;  ///< from the expert axis, its own included
  double arrived = 0.0;   ///< by all shards
};
RowCounts count_rows(const comm::Grid& grid, const DispatchCase& reference) {
  const Index ep = grid.degree(comm::Axis::kExpert);
  const Index etp = grid.degree(comm::Axis::kExpertTensor);
  const Index me = grid.coordinate(comm::Axis::kExpert);
  const Index shard = grid.coordinate(comm::Axis::kExpertTensor);
  RowCounts rows;
  for (Index q = 0; q < ep; ++q) {
    const double here = rows_for(reference, q * etp + shard, me, ep);
    rows.received += here;
    if (q != me) rows.back += here;
    if (q != me) rows.away += rows_for(reference, me * etp + shard, q, ep);
    for (Index f = 0; f < etp; ++f) {
      rows.arrived += rows_for(reference, q * etp + f, me, ep);
    }
  }
  return rows;
}

using DispatchTraffic = OverAllDegrees;

TEST_F(DispatchTraffic, AllToAllSendsEachRowToItsExpert) {
  for (const auto& grid : grids()) {
    for (const Routing routing : routings()) {
      SCOPED_TRACE(describe(*grid, routing, DispatcherKind::kAllToAll));
      const DispatchCase reference(*grid, {}, routing);
      const auto& shape = reference.shape();
      const double row = static_cast<double>(shape.hidden) * kDouble;
      const auto shards = static_cast<double>(grid->degree(comm::Axis::kExpertTensor));
      const RowCounts rows = count_rows(*grid, reference);
      const Sent sent(*grid);
      Planned<double> planned(*grid, reference, DispatcherKind::kAllToAll);
      EXPECT_EQ(sent.bytes(GroupName::kDispatch, Exchange::kAllGather),
                static_cast<double>((reference.ranks() - 1) * (shape.experts + 1)) * 8.0);
      planned.dispatch(reference.own().x);
      EXPECT_EQ(sent.bytes(GroupName::kExpert, Exchange::kAllToAll), rows.away * row);
      EXPECT_EQ(sent.bytes(GroupName::kExpertTensor, Exchange::kAllGather),
                (shards - 1.0) * rows.received * row);
      planned.combine(own_values(*grid, reference, shape.hidden));
      EXPECT_EQ(sent.bytes(GroupName::kExpert, Exchange::kAllToAll),
                (rows.away + rows.back) * row);
      EXPECT_EQ(sent.bytes(GroupName::kExpertTensor, Exchange::kReduceScatter),
                (rows.arrived - rows.received) * row);
    }
  }
}

TEST_F(DispatchTraffic, AllGatherSendsEachTokenToAll) {
  for (const auto& grid : grids()) {
    for (const Routing routing : {Routing::kFull, Routing::kNothing}) {
      const DispatchCase reference(*grid, {}, routing);
      if (reference.ranks() == 1) continue;
      const auto& shape = reference.shape();
      const auto others = static_cast<double>(reference.ranks() - 1);
      const Sent sent(*grid);
      Planned<double> planned(*grid, reference, DispatcherKind::kAllGather);
      // The number of tokens, and the choices.
      const double sizes = 8.0 + static_cast<double>(shape.tokens * shape.choices) * 4.0;
      EXPECT_EQ(sent.bytes(GroupName::kDispatch, Exchange::kAllGather), others * sizes);
      planned.dispatch(reference.own().x);
      const double tokens = static_cast<double>(shape.tokens * shape.hidden) * kDouble;
      EXPECT_EQ(sent.bytes(GroupName::kDispatch, Exchange::kAllGather),
                others * (sizes + tokens));
      planned.combine(own_values(*grid, reference, shape.hidden));
      EXPECT_EQ(sent.bytes(GroupName::kDispatch, Exchange::kReduceScatter),
                others * tokens);
    }
  }
}

/// \brief Bytes that a balanced layer sends for one token, on average over the ranks:
/// dispatch and combine, without what plan() sends.
double counted(const comm::Grid& grid, DispatcherKind kind, const DispatchShape& shape) {
  const DispatchCase reference(grid, shape, Routing::kBalanced);
  Planned<double> planned(grid, reference, kind);
  const Sent sent(grid);
  planned.dispatch(reference.own().x);
  planned.combine(own_values(grid, reference, shape.hidden));
  comm::Communicator& world = grid.group(GroupName::kWorld);
  return world.all_reduce_value(sent.all(), comm::Reduction::kSum) /
         static_cast<double>(world.size() * shape.tokens);
}

TEST_F(DispatchTraffic, BalancedLayersSendWhatTheFormulasSay) {
  // Tokens times choices are a multiple of the experts: every expert gets as many rows.
  const DispatchShape shape{.tokens = 16, .choices = 3, .experts = 8, .hidden = 5};
  const TokenBytes formulas{static_cast<double>(shape.hidden), kDouble,
                            static_cast<double>(shape.choices)};
  for (const auto& grid : grids()) {
    const auto ep = static_cast<double>(grid->degree(comm::Axis::kExpert));
    const auto etp = static_cast<double>(grid->degree(comm::Axis::kExpertTensor));
    EXPECT_DOUBLE_EQ(counted(*grid, DispatcherKind::kAllToAll, shape),
                     formulas.experts(ep) + formulas.shards(etp));
    EXPECT_DOUBLE_EQ(counted(*grid, DispatcherKind::kAllGather, shape),
                     formulas.gathered(ep * etp));
  }
}

}  // namespace
}  // namespace pleat::test
