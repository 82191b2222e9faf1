// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The communicators of a grid against its rank arithmetic.

#include <atomic>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/error.hpp"
#include "pleat/comm/grid.hpp"
#include "support/world.hpp"

namespace pleat::comm {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using Numbers = HostView<std::int64_t, 1>;

int world_size() {
  int size = 0;
  MPI_Comm_size(test::world(), &size);
  return size;
}

// Every mapping of degrees 1, 2, 4 and 8 that fills the ranks.
std::vector<Degrees> mappings(std::int64_t ranks) {
  std::vector<Degrees> all;
  const std::vector<std::int64_t> powers{1, 2, 4, 8};
  for (const std::int64_t pp : powers)
    for (const std::int64_t cp : powers)
      for (const std::int64_t tp : powers)
        for (const std::int64_t ep : powers)
          for (const std::int64_t etp : powers) {
            if (ranks % (pp * cp * tp) == 0 && ranks % (pp * ep * etp) == 0) {
              all.push_back({pp, cp, tp, ep, etp});
            }
          }
  return all;
}

std::vector<std::int64_t> members(const Grid& grid, GroupName name) {
  Communicator& group = grid.group(name);
  const Numbers mine("mine", 1), all("all", static_cast<std::size_t>(group.size()));
  mine(0) = grid.rank();
  group.all_gather(mine, all);
  return {all.data(), all.data() + all.extent(0)};
}

void expect_groups(const Grid& grid) {
  const GridShape& shape = grid.shape();
  const auto expect = [&](GroupName name, std::initializer_list<Axis> axes) {
    EXPECT_THAT(members(grid, name), ElementsAreArray(shape.group(grid.rank(), axes)))
        << group_name(name) << ", " << grid.describe_rank();
  };
  expect(GroupName::kWorld,
         {Axis::kPipeline, Axis::kData, Axis::kContext, Axis::kTensor});
  expect(GroupName::kPipeline, {Axis::kPipeline});
  expect(GroupName::kData, {Axis::kData});
  expect(GroupName::kContext, {Axis::kContext});
  expect(GroupName::kTensor, {Axis::kTensor});
  expect(GroupName::kDataContext, {Axis::kData, Axis::kContext});
  expect(GroupName::kContextTensor, {Axis::kContext, Axis::kTensor});
  expect(GroupName::kDataContextTensor, {Axis::kData, Axis::kContext, Axis::kTensor});
  expect(GroupName::kExpertData, {Axis::kExpertData});
  expect(GroupName::kExpert, {Axis::kExpert});
  expect(GroupName::kExpertTensor, {Axis::kExpertTensor});
  expect(GroupName::kDispatch, {Axis::kExpert, Axis::kExpertTensor});
}

void expect_coordinates(const Grid& grid) {
  const auto expect = [&](GroupName name, std::int64_t place) {
    EXPECT_EQ(grid.group(name).rank(), place) << group_name(name);
  };
  expect(GroupName::kPipeline, grid.coordinate(Axis::kPipeline));
  expect(GroupName::kData, grid.coordinate(Axis::kData));
  expect(GroupName::kContext, grid.coordinate(Axis::kContext));
  expect(GroupName::kTensor, grid.coordinate(Axis::kTensor));
  expect(GroupName::kExpertData, grid.coordinate(Axis::kExpertData));
  expect(GroupName::kExpert, grid.coordinate(Axis::kExpert));
  expect(GroupName::kExpertTensor, grid.coordinate(Axis::kExpertTensor));
  expect(GroupName::kDispatch,
         grid.coordinate(Axis::kExpert) * grid.degree(Axis::kExpertTensor) +
             grid.coordinate(Axis::kExpertTensor));
}

// 146 grids on eight ranks, of more groups than MPI has contexts: they must be freed.
TEST(Grid, GroupsOfEveryMapping) {
  const int ranks = world_size();
  for (const Degrees& degrees : mappings(ranks)) {
    const Grid grid(test::world(), GridShape(degrees, ranks));
    expect_groups(grid);
    expect_coordinates(grid);
  }
}

TEST(Grid, OneRankWithoutMpi) {
  const Grid grid;
  EXPECT_EQ(grid.rank(), 0);
  EXPECT_EQ(grid.shape().ranks(), 1);
  EXPECT_EQ(grid.files(), MPI_COMM_SELF);
  for (std::size_t i = 0; i < kGroups; ++i) {
    EXPECT_EQ(grid.group(static_cast<GroupName>(i)).size(), 1);
  }
  EXPECT_EQ(grid.describe_rank(),
            "rank 0 (pipeline 0, data 0, context 0, tensor 0; expert_data 0, expert 0, "
            "expert_tensor 0)");
}

TEST(Grid, TrafficByGroup) {
  const int ranks = world_size();
  const Grid grid(test::world(), GridShape({.tensor = ranks}, ranks));
  grid.group(GroupName::kTensor).all_reduce_value(1.0, Reduction::kSum);
  const auto traffic = grid.traffic();
  std::vector<std::string> labels;
  for (const auto& [label, of_group] : traffic) {
    labels.push_back(label);
    const bool mine = label == "tensor" && ranks > 1;
    EXPECT_EQ(of_group.of(Exchange::kAllReduce).calls, mine ? 1 : 0) << label;
  }
  EXPECT_THAT(labels, ElementsAre("world", "pipeline", "data", "context", "tensor",
                                  "data*context", "context*tensor", "data*context*tensor",
                                  "expert_data", "expert", "expert_tensor",
                                  "expert*expert_tensor"));
}

// All other ranks wait for the last one, which comes late, and look at themselves meanwhile.
TEST(Grid, TellsInWhichExchangeARankIsBlocked) {
  const int ranks = world_size();
  const Grid grid(test::world(), GridShape(Degrees{}, ranks));
  Communicator& group = grid.group(GroupName::kDataContext);
  const bool late = grid.rank() == ranks - 1;
  const auto seen_during = [&](const std::function<void()>& exchange) {
    std::set<std::string> seen;
    std::atomic<bool> done = false;
    std::thread observer([&] {
      while (!done) {
        seen.insert(grid.exchange_under_way());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    if (late) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    exchange();
    done = true;
    observer.join();
    seen.erase("");
    return seen;
  };
  const auto sum = seen_during([&] { group.all_reduce_value(1.0, Reduction::kSum); });
  const auto barrier = seen_during([&] { group.barrier(); });
  EXPECT_EQ(grid.exchange_under_way(), "");
  if (late) return;
  EXPECT_THAT(sum, ElementsAre("all_reduce of data*context"));
  EXPECT_THAT(barrier, ElementsAre("barrier of data*context"));
}

TEST(Grid, RefusesAnotherRankCount) {
  const int ranks = world_size();
  try {
    const Grid grid(test::world(), GridShape(Degrees{}, ranks + 1));
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(error.id(), "PL0802");
  }
}

}  // namespace
}  // namespace pleat::comm
