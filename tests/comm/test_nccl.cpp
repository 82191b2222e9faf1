// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief What the NCCL back end does beyond the collectives, which test_collectives.cpp
/// and test_exchanges.cpp compare with plain loops: order of messages, errors, clean-up.

#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/tested_backend.hpp"
#include "counters.hpp"
#include "nccl.h"
#include "pleat/base/error.hpp"
#include "pleat/comm/grid.hpp"

namespace pleat::comm {
namespace {

using testing::HasSubstr;
using Values = DeviceView<double, 1>;

Values filled(std::size_t count, double value) {
  const Values x_N("x", count);
  Kokkos::deep_copy(x_N, value);
  return x_N;
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

class Nccl : public testing::Test {
 protected:
  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  int next() const { return (rank() + 1) % size(); }
  int previous() const { return (rank() + size() - 1) % size(); }

  std::unique_ptr<Communicator> group_ =
      make_communicator(test::world(), kTested, "ring");
};

// More than MPI or NCCL would send without a receiver. All send before they receive, up
// the ring and down, and wait in another order: one queue for all of it would stand
// still.
TEST_F(Nccl, MessagesPassEachOther) {
  if (size() == 1) GTEST_SKIP() << "needs two ranks";
  constexpr std::size_t kCount = 1 << 18;
  constexpr int kUp = 0, kDown = 1;  // tags, as those of a pipeline
  const Values up = filled(kCount, rank()), down = filled(kCount, rank() + 100);
  const Values again = filled(kCount, rank() + 200);
  const Values from_below = filled(kCount, -1), from_above = filled(kCount, -1);
  const Values from_below_again = filled(kCount, -1);
  Pending a = group_->send(up, next(), kUp);
  Pending b = group_->send(again, next(), kUp);
  Pending c = group_->send(down, previous(), kDown);
  Pending d = group_->receive(from_above, next(), kDown);
  Pending e = group_->receive(from_below, previous(), kUp);
  Pending f = group_->receive(from_below_again, previous(), kUp);
  for (Pending* pending : {&d, &f, &e, &a, &c, &b}) pending->wait();
  EXPECT_EQ(from_below(kCount - 1), previous());
  EXPECT_EQ(from_below_again(kCount - 1), previous() + 200);
  EXPECT_EQ(from_above(kCount - 1), next() + 100);
}

TEST_F(Nccl, ReadyTellsOfTheExchangeItself) {
  if (size() == 1) GTEST_SKIP() << "needs two ranks";
  const Values x_N = filled(4, rank());
  const Values y_N = filled(4, -1);
  Pending arriving = group_->receive(y_N, previous(), 0);
  EXPECT_FALSE(arriving.ready());  // nobody sends before the barrier
  group_->barrier();
  group_->send(x_N, next(), 0).wait();
  arriving.wait();
  EXPECT_TRUE(arriving.ready());
  EXPECT_EQ(y_N(3), previous());
}

TEST_F(Nccl, MessagesGoToNeighboursOfGroupsMadeForThem) {
  if (size() == 1) GTEST_SKIP() << "needs two ranks";
  const Values x_N = filled(4, 0);
  if (size() > 3) {
    const auto across = [&] { group_->send(x_N, (rank() + 2) % size(), 0).wait(); };
    EXPECT_THAT(message_of(across), HasSubstr("no neighbours"));
  }
  const auto part = group_->split(0, "part");
  part->all_reduce(filled(4, 1), Reduction::kSum);
  EXPECT_THAT(message_of([&] { part->send(x_N, next(), 0).wait(); }),
              HasSubstr("group part was made without messages"));
}

// Counts on the host keep to MPI, in whatever order with exchanges under way.
TEST_F(Nccl, SingleValuesDoNotPassThroughIt) {
  if (size() == 1) GTEST_SKIP() << "needs two ranks";
  const Values x_N = filled(1000, 1);
  Pending sum = group_->start_all_reduce(x_N, Reduction::kSum);
  EXPECT_EQ(group_->all_reduce_value(rank(), Reduction::kMax), size() - 1);
  sum.wait();
  EXPECT_EQ(x_N(999), size());
}

TEST_F(Nccl, FailedCallNamesCallGroupAndMemberAndGivesTheGroupUp) {
  if (size() == 1) GTEST_SKIP() << "needs two ranks";
  const Values x_N = filled(4, 1);
  const auto sum = [&] { group_->all_reduce(x_N, Reduction::kSum); };
  stand_in::fail_next(ncclSystemError);
  const std::string message = message_of(sum);
  EXPECT_THAT(message,
              HasSubstr("PL0811: ncclAllReduce failed in group ring, member " +
                        std::to_string(rank()) + " of " + std::to_string(size())));
  EXPECT_THAT(message, HasSubstr("the stand-in's last words"));
  EXPECT_THAT(message_of(sum), HasSubstr("given up"));
  const int aborted = stand_in::calls().aborted;
  group_.reset();
  EXPECT_EQ(stand_in::calls().aborted, aborted + 1);
}

TEST_F(Nccl, ErrorBehindAnExchangeIsReportedByWait) {
  if (size() == 1) GTEST_SKIP() << "needs two ranks";
  const Values x_N = filled(4, 1);
  Pending sum = group_->start_all_reduce(x_N, Reduction::kSum);
  stand_in::fail_behind(ncclRemoteError);
  const std::string message = message_of([&] { sum.wait(); });
  stand_in::fail_behind(ncclSuccess);
  EXPECT_THAT(message, HasSubstr("PL0811: an exchange under way failed in group ring"));
  EXPECT_THAT(message, HasSubstr("remote process exited"));
}

// A member waits for a message that never comes; an exception must get past it.
TEST_F(Nccl, ExceptionLeavesNobodyWaiting) {
  if (size() == 1) GTEST_SKIP() << "needs two ranks";
  const int aborted = stand_in::calls().aborted;
  const Values never = filled(4, 0);
  try {
    const auto group = make_communicator(test::world(), kTested, "left");
    Pending arriving = group->receive(never, previous(), 0);
    throw std::runtime_error("left");
  } catch (const std::runtime_error&) {
  }
  EXPECT_GT(stand_in::calls().aborted, aborted);
}

// As many events as exchanges were under way at once, however many there are.
TEST_F(Nccl, LaterExchangesMakeNoEvents) {
  const Values x_N = filled(4, 1.0), y_N = filled(4, 2.0);
  const auto two_at_once = [&] {
    Pending a = group_->start_all_reduce(x_N, Reduction::kSum);
    Pending b = group_->start_all_reduce(y_N, Reduction::kSum);
    a.wait();
    b.wait();
  };
  two_at_once();
  const int events = stand_in::live_events, made = stand_in::made_events;
  for (int i = 0; i < 10; ++i) two_at_once();
  EXPECT_EQ(stand_in::live_events, events);
  EXPECT_EQ(stand_in::made_events, made);
}

TEST_F(Nccl, LeavesNothingBehind) {
  const stand_in::Calls before = stand_in::calls();
  for (int i = 0; i < 5; ++i) {
    const auto group = make_communicator(test::world(), kTested, "again");
    group->all_reduce(filled(4, 1), Reduction::kSum);
  }
  const stand_in::Calls after = stand_in::calls();
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.connected - before.connected, after.destroyed - before.destroyed);
  EXPECT_EQ(after.connected - before.connected, size() == 1 ? 0 : 5 * 5);
  EXPECT_EQ(after.aborted, before.aborted);
}

TEST(Choice, AGpuForEachRank) {
  int ranks = 1;
  MPI_Comm_size(test::world(), &ranks);
  EXPECT_EQ(choose_backend(BackendKind::kAuto, test::world()), BackendKind::kMpi);
  EXPECT_EQ(choose_backend(BackendKind::kNccl, test::world()),
            ranks > 1 ? BackendKind::kNccl : BackendKind::kMpi);
  stand_in::one_device = true;
  const auto wanted = [] { choose_backend(BackendKind::kNccl, test::world()); };
  EXPECT_THAT(message_of(wanted), HasSubstr(ranks > 1 ? "PL0806" : "nothing thrown"));
  stand_in::one_device = false;
}

TEST(GridOverNccl, StagesSendAndDataRanksSum) {
  int ranks = 1;
  MPI_Comm_size(test::world(), &ranks);
  if (ranks != 4) GTEST_SKIP() << "needs four ranks";
  const Grid grid(test::world(), GridShape({.pipeline = 2, .expert = 2}, 4),
                  BackendKind::kNccl);
  EXPECT_EQ(grid.backend(), BackendKind::kNccl);
  Communicator& stages = grid.group(GroupName::kPipeline);
  const Values x_N = filled(3, static_cast<double>(grid.rank())), y_N = filled(3, -1);
  Pending forward = stages.send(x_N, 1 - stages.rank(), 0);
  stages.receive(y_N, 1 - stages.rank(), 0).wait();
  forward.wait();
  EXPECT_EQ(y_N(2), static_cast<double>((grid.rank() + 2) % 4));
  grid.group(GroupName::kData).all_reduce(x_N, Reduction::kSum);
  EXPECT_EQ(x_N(0), grid.rank() < 2 ? 1.0 : 5.0);
}

}  // namespace
}  // namespace pleat::comm
