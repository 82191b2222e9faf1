// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/error.hpp"
#include "pleat/comm/grid_shape.hpp"

namespace pleat::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string message_of(const Degrees& degrees, std::int64_t ranks) {
  try {
    const GridShape grid(degrees, ranks);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(GridShape, OneRankIsAloneInEveryGroup) {
  const GridShape grid(Degrees{}, 1);
  EXPECT_THAT(grid.group(0, {Axis::kData, Axis::kContext}), ElementsAre(0));
  EXPECT_EQ(grid.degree(Axis::kData), 1);
  EXPECT_EQ(grid.degree(Axis::kExpertData), 1);
}

// The smallest instructive case of arXiv 2504.14960, figure 9: attention TP2 CP2 DP2, MoE
// ETP1 EP8 EDP1 over the same eight ranks.
TEST(GridShape, SmallestFoldedCase) {
  const GridShape grid({.context = 2, .tensor = 2, .expert = 8}, 8);
  EXPECT_EQ(grid.degree(Axis::kData), 2);
  EXPECT_EQ(grid.degree(Axis::kExpertData), 1);
  EXPECT_THAT(grid.group(5, {Axis::kTensor}), ElementsAre(4, 5));
  EXPECT_THAT(grid.group(5, {Axis::kContext}), ElementsAre(5, 7));
  EXPECT_THAT(grid.group(5, {Axis::kData}), ElementsAre(1, 5));
  EXPECT_THAT(grid.group(5, {Axis::kData, Axis::kContext}), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(grid.group(5, {Axis::kTensor, Axis::kContext}), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(grid.group(5, {Axis::kExpert}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(grid.group(5, {Axis::kExpertData}), ElementsAre(5));
}

TEST(FewestRanks, FillBothGrids) {
  EXPECT_EQ(fewest_ranks({}), 1);
  EXPECT_EQ(fewest_ranks({.context = 2, .tensor = 2, .expert = 8}), 8);
  EXPECT_EQ(fewest_ranks({.tensor = 3, .expert = 2}), 6);
  EXPECT_EQ(fewest_ranks({.pipeline = 4, .tensor = 2, .expert_tensor = 6}), 24);
  constexpr std::int64_t kLargest = 1 << 20;
  EXPECT_GE(fewest_ranks({.context = kLargest, .tensor = kLargest}), kLargest);
  EXPECT_THROW(fewest_ranks({.tensor = 0}), InputError);
  EXPECT_THROW(fewest_ranks({.expert = kLargest + 1}), InputError);
}

// Four ranks, ETP 2 and EP 2: expert tensor is the fastest axis.
TEST(GridShape, DispatchGroups) {
  const GridShape grid({.expert = 2, .expert_tensor = 2}, 4);
  EXPECT_THAT(grid.group(2, {Axis::kExpertTensor}), ElementsAre(2, 3));
  EXPECT_THAT(grid.group(2, {Axis::kExpert}), ElementsAre(0, 2));
  EXPECT_THAT(grid.group(2, {Axis::kExpert, Axis::kExpertTensor}),
              ElementsAre(0, 1, 2, 3));
}

// TP4 CP2 DP8 PP4 on 256 ranks allows EP64 with ETP1 once the grids are folded.
TEST(GridShape, ExpertDegreeIsNotBoundedByData) {
  const GridShape grid({.pipeline = 4, .context = 2, .tensor = 4, .expert = 64}, 256);
  EXPECT_EQ(grid.degree(Axis::kData), 8);
  EXPECT_EQ(grid.degree(Axis::kExpertData), 1);
  EXPECT_EQ(grid.group(100, {Axis::kExpert}).size(), 64U);
}

// Both formulas of the rank, evaluated in plain loops, against coordinates and ranks.
void expect_numbering(const Degrees& d, std::int64_t ranks) {
  const GridShape grid(d, ranks);
  const std::int64_t dp_size = ranks / (d.pipeline * d.context * d.tensor);
  const std::int64_t edp_size = ranks / (d.pipeline * d.expert * d.expert_tensor);
  std::int64_t rank = 0;
  for (std::int64_t pp = 0; pp < d.pipeline; ++pp)
    for (std::int64_t dp = 0; dp < dp_size; ++dp)
      for (std::int64_t cp = 0; cp < d.context; ++cp)
        for (std::int64_t tp = 0; tp < d.tensor; ++tp, ++rank) {
          ASSERT_EQ(grid.attention_rank({pp, dp, cp, tp}), rank);
          ASSERT_EQ(grid.coordinate(rank, Axis::kPipeline), pp);
          ASSERT_EQ(grid.coordinate(rank, Axis::kData), dp);
          ASSERT_EQ(grid.coordinate(rank, Axis::kContext), cp);
          ASSERT_EQ(grid.coordinate(rank, Axis::kTensor), tp);
        }
  EXPECT_EQ(rank, ranks);
  rank = 0;
  for (std::int64_t pp = 0; pp < d.pipeline; ++pp)
    for (std::int64_t edp = 0; edp < edp_size; ++edp)
      for (std::int64_t ep = 0; ep < d.expert; ++ep)
        for (std::int64_t etp = 0; etp < d.expert_tensor; ++etp, ++rank) {
          ASSERT_EQ(grid.moe_rank({pp, edp, ep, etp}), rank);
          // The one coupling of the grids: a rank's stage is the same in both.
          ASSERT_EQ(grid.coordinate(rank, Axis::kPipeline), pp);
          ASSERT_EQ(grid.coordinate(rank, Axis::kExpertData), edp);
          ASSERT_EQ(grid.coordinate(rank, Axis::kExpert), ep);
          ASSERT_EQ(grid.coordinate(rank, Axis::kExpertTensor), etp);
        }
  EXPECT_EQ(rank, ranks);
}

TEST(GridShape, NumberingOfSmallGrids) {
  for (std::int64_t pp : {1, 2, 3})
    for (std::int64_t cp : {1, 2})
      for (std::int64_t tp : {1, 2, 5})
        for (std::int64_t ep : {1, 2, 4})
          for (std::int64_t etp : {1, 3}) {
            expect_numbering({pp, cp, tp, ep, etp}, pp * cp * tp * ep * etp * 2);
          }
}

TEST(GridShape, NumberingOf16384Ranks) {
  expect_numbering(
      {.pipeline = 16, .context = 4, .tensor = 8, .expert = 64, .expert_tensor = 2},
      16384);
}

// Groups of one axis partition the ranks, and each has the axis's degree.
TEST(GridShape, GroupsPartition16384Ranks) {
  const GridShape grid(
      {.pipeline = 8, .context = 2, .tensor = 8, .expert = 128, .expert_tensor = 1},
      16384);
  for (std::size_t a = 0; a < kAxes; ++a) {
    const Axis axis = static_cast<Axis>(a);
    std::set<std::int64_t> seen;
    for (std::int64_t rank = 0; rank < grid.ranks(); ++rank) {
      if (grid.coordinate(rank, axis) != 0) continue;
      const std::vector<std::int64_t> group = grid.group(rank, {axis});
      ASSERT_EQ(static_cast<std::int64_t>(group.size()), grid.degree(axis));
      for (std::size_t i = 0; i < group.size(); ++i) {
        ASSERT_EQ(grid.coordinate(group[i], axis), static_cast<std::int64_t>(i));
        ASSERT_TRUE(seen.insert(group[i]).second);
      }
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), grid.ranks()) << axis_name(axis);
  }
}

TEST(GridShape, NamesTheBrokenRuleAndTheNearestChoices) {
  const std::string attention = message_of({.context = 2, .tensor = 4}, 12);
  EXPECT_THAT(attention, HasSubstr("PL0802"));
  EXPECT_THAT(attention, HasSubstr("attention layers does not fill 12 ranks"));
  EXPECT_THAT(attention, HasSubstr("multiple of 8"));
  EXPECT_THAT(attention, HasSubstr("are 8 ranks, or 16 ranks, or "));
  EXPECT_THAT(attention, HasSubstr("parallel.tensor = 3"));

  const std::string moe = message_of({.expert = 8}, 6);
  EXPECT_THAT(moe, HasSubstr("MoE layers does not fill 6 ranks"));
  EXPECT_THAT(moe, HasSubstr("8 ranks, or parallel.expert = 6"));
}

TEST(GridShape, RejectsDegreesOutOfRange) {
  EXPECT_THAT(message_of({.tensor = 0}, 4), HasSubstr("parallel.tensor = 0"));
  EXPECT_THAT(message_of({.expert = -2}, 4), HasSubstr("PL0801"));
  EXPECT_THAT(message_of({}, 0), HasSubstr("PL0801"));
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_THAT(message_of({huge, huge, huge, 1, 1}, 4), HasSubstr("PL0801"));
}

TEST(GridShape, AxesOfDifferentGridsAreNoGroup) {
  const GridShape grid({.tensor = 2, .expert = 2}, 4);
  EXPECT_THROW(grid.group(0, {Axis::kTensor, Axis::kExpert}), InternalError);
}

}  // namespace
}  // namespace pleat::comm
