// SPDX-License-Identifier: Apache-2.0
//
// Padding changes where rows lie and nothing else.
#include <gtest/gtest.h>

#include "dispatch/planned_dispatch.hpp"

namespace pleat::test {
namespace {

/// \brief Rows that a rank has for an expert, at most; at least 1.
Index fullest(const DispatchCase& reference) {
  Index rows = 1;
  for (Index p = 0; p < reference.ranks(); ++p) {
    for (Index e = 0; e < reference.shape().experts; ++e) {
      rows = std::max(rows, reference.rows(p, e));
    }
  }
  return rows;
}

/// \brief The rows of this rank's experts with `capacity` rows for each source, the
/// missing ones filled with `filler`.
Values padded(const comm::Grid& grid, const DispatchCase& reference, const Values& tight,
              Index columns, Index capacity, double filler) {
  const auto local = static_cast<Index>(reference.offsets().size()) - 1;
  const Index first = grid.coordinate(comm::Axis::kExpert) * local;
  Values wide;
  auto from = tight.begin();
  for (Index e = first; e < first + local; ++e) {
    for (Index p = 0; p < reference.ranks(); ++p) {
      const Index rows = reference.rows(p, e);
      wide.insert(wide.end(), from, from + rows * columns);
      from += rows * columns;
      wide.insert(wide.end(), static_cast<std::size_t>((capacity - rows) * columns),
                  filler);
    }
  }
  return wide;
}

using PaddedDispatch = OverAllDegrees;

TEST_F(PaddedDispatch, HasTheRowsOfTheUnpaddedOneAndZeros) {
  const auto body = [](const comm::Grid& grid, const DispatchCase& reference,
                       DispatcherKind kind) {
    const Index hidden = reference.shape().hidden;
    const Index capacity = fullest(reference) + 2;
    Planned<double> tight(grid, reference, kind);
    Planned<double> wide(grid, reference, kind, capacity);
    const auto local = static_cast<Index>(reference.offsets().size()) - 1;
    ASSERT_EQ(wide.record.rows, local * reference.ranks() * capacity);
    Values offsets;
    for (Index l = 0; l <= local; ++l) {
      offsets.push_back(static_cast<double>(l * reference.ranks() * capacity));
    }
    expect_same(to_host(wide.record.offsets_L1), offsets, "offsets_L1");
    expect_same(Values(wide.record.host_offsets.begin(), wide.record.host_offsets.end()),
                offsets, "host_offsets");
    expect_same(
        wide.dispatch(reference.own().x),
        padded(grid, reference, tight.dispatch(reference.own().x), hidden, capacity, 0.0),
        "x_RD");
    expect_same(wide.dispatch_weights(reference.own().weight),
                padded(grid, reference, tight.dispatch_weights(reference.own().weight), 1,
                       capacity, 0.0),
                "weight_R");
  };
  for_each_case(body, {Routing::kHoles, Routing::kEmptyRank, Routing::kEmptyGroup});
}

TEST_F(PaddedDispatch, IgnoresWhatExpertsMakeOfPadding) {
  const auto body = [](const comm::Grid& grid, const DispatchCase& reference,
                       DispatcherKind kind) {
    const Index hidden = reference.shape().hidden;
    const Index capacity = fullest(reference);
    Planned<double> tight(grid, reference, kind);
    Planned<double> wide(grid, reference, kind, capacity);
    const Values y = own_values(grid, reference, hidden);
    const Values dweight = own_values(grid, reference, 1);
    expect_same(wide.combine(padded(grid, reference, y, hidden, capacity, 9.0)),
                tight.combine(y), "y_TD");
    expect_same(wide.return_weights(padded(grid, reference, dweight, 1, capacity, 9.0)),
                tight.return_weights(dweight), "dweight_TK");
  };
  for_each_case(body, {Routing::kHoles, Routing::kEmptyRank, Routing::kEmptyGroup});
}

TEST_F(PaddedDispatch, ExchangesNoSizes) {
  for (const auto& grid : grids()) {
    const DispatchCase reference(*grid, {}, Routing::kHoles);
    const auto calls = [&] {
      std::int64_t sum = 0;
      for (const auto& [group, traffic] : grid->traffic()) {
        for (const auto& entry : traffic.entries) sum += entry.calls;
      }
      return sum;
    };
    const std::int64_t before = calls();
    Planned<double> planned(*grid, reference, DispatcherKind::kAllToAll, 13);
    EXPECT_EQ(calls(), before);
  }
}

}  // namespace
}  // namespace pleat::test
