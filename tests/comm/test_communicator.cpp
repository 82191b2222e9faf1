// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Groups, their traffic, and what they refuse. Collectives: test_collectives.cpp.

#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/error.hpp"
#include "pleat/comm/check_mpi.hpp"
#include "pleat/comm/communicator.hpp"
#include "support/world.hpp"

namespace pleat::comm {
namespace {

using Counts = std::vector<std::int64_t>;
using Values = HostView<double, 1>;

template <class Call>
std::string id_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.id();
  }
  return "nothing thrown";
}

TEST(Communicator, SelfCopiesAndSendsNothing) {
  const auto group = make_self_communicator("alone");
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(group->label(), "alone");
  const Values in_N("in", 3), out_N("out", 3);
  Kokkos::deep_copy(in_N, 4.0);
  group->all_gather(in_N, out_N);
  EXPECT_EQ(out_N(2), 4.0);
  Kokkos::deep_copy(in_N, 5.0);
  group->reduce_scatter(in_N, out_N);
  EXPECT_EQ(out_N(2), 5.0);
  Kokkos::deep_copy(in_N, 6.0);
  group->all_to_all_v(in_N, Counts{3}, out_N, Counts{3});
  EXPECT_EQ(out_N(2), 6.0);
  group->all_gather(out_N, out_N);
  group->all_reduce(out_N, Reduction::kSum);
  group->broadcast(out_N, 0);
  group->barrier();
  EXPECT_EQ(out_N(2), 6.0);
  EXPECT_EQ(group->all_reduce_value(2.5, Reduction::kMax), 2.5);
  for (const Traffic::Entry& entry : group->traffic().entries) {
    EXPECT_EQ(entry.calls, 0);
    EXPECT_EQ(entry.bytes, 0.0);
  }
}

// The copy of a group of one stays in the order of the work queued around it.
TEST(Communicator, SelfIsOrderedAfterQueuedWork) {
  const auto group = make_self_communicator();
  const std::size_t n = 1 << 20;
  const DeviceView<double, 1> in_N("in", n), out_N("out", n);
  Kokkos::parallel_for(
      "fill", Kokkos::RangePolicy<ExecSpace>(0, n),
      KOKKOS_LAMBDA(const std::size_t i) { in_N(i) = static_cast<double>(i); });
  group->all_gather(in_N, out_N);
  const auto host_N = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out_N);
  EXPECT_EQ(host_N(n - 1), static_cast<double>(n - 1));
}

TEST(Communicator, SplitFollowsColoursAndRanks) {
  const auto world = make_mpi_communicator(test::world());
  const auto half = world->split(world->rank() % 2, "half");
  EXPECT_EQ(half->label(), "half");
  EXPECT_EQ(half->size(), (world->size() + 1 - world->rank() % 2) / 2);
  EXPECT_EQ(half->rank(), world->rank() / 2);
  double expected = 0;
  for (int r = world->rank() % 2; r < world->size(); r += 2) expected += r + 1;
  EXPECT_EQ(half->all_reduce_value(world->rank() + 1.0, Reduction::kSum), expected);
  const auto alone = half->split(half->rank(), "alone");
  EXPECT_EQ(alone->size(), 1);
}

// MPI libraries have a few thousand contexts at a time.
TEST(Communicator, ContextsAreFreed) {
  const auto world = make_mpi_communicator(test::world());
  if (world->size() > 2) GTEST_SKIP() << "two ranks show it";
  for (int i = 0; i < 2500; ++i) {
    const auto again = make_mpi_communicator(test::world());
    ASSERT_EQ(again->size(), world->size());
  }
}

TEST(Communicator, TrafficFollowsTheClosedFormulas) {
  const auto group = make_mpi_communicator(test::world());
  const int size = group->size();
  if (size == 1) GTEST_SKIP() << "a group of one sends nothing";
  const double others = size - 1;
  const std::size_t members = static_cast<std::size_t>(size);
  const Values part("part", 5), whole("whole", 5 * members);
  const HostView<std::int32_t, 1> numbers("numbers", 3);
  const Counts equal(members, 5);

  const auto expect = [&](Exchange exchange, std::int64_t calls, double bytes) {
    const Traffic::Entry& entry = group->traffic().of(exchange);
    EXPECT_EQ(entry.calls, calls) << exchange_name(exchange);
    EXPECT_DOUBLE_EQ(entry.bytes, bytes) << exchange_name(exchange);
  };
  group->all_gather(part, whole);
  expect(Exchange::kAllGather, 1, others * 40);
  group->all_gather_v(part, whole, equal);
  expect(Exchange::kAllGather, 2, others * 80);
  group->reduce_scatter(whole, part);
  expect(Exchange::kReduceScatter, 1, others * 40);
  group->reduce_scatter_v(whole, part, equal);
  expect(Exchange::kReduceScatter, 2, others * 80);
  group->all_reduce(numbers, Reduction::kSum);
  expect(Exchange::kAllReduce, 1, 2 * others / size * 12);
  group->all_reduce_value(1.0, Reduction::kMax);
  expect(Exchange::kAllReduce, 2, 2 * others / size * 20);
  group->broadcast(numbers, 0);
  expect(Exchange::kBroadcast, 1, others / size * 12);
  group->all_to_all_v(whole, equal, whole, equal);
  expect(Exchange::kAllToAll, 1, others * 40);

  Pending arriving = group->receive(numbers, (group->rank() + size - 1) % size, 0);
  const HostView<std::int32_t, 1> sent("sent", 3);
  group->send(sent, (group->rank() + 1) % size, 0).wait();
  arriving.wait();
  expect(Exchange::kSend, 1, 12);
  group->barrier();
}

// With unlike counts: a member sends its own part to all others, or their parts of the
// sum.
TEST(Communicator, TrafficOfUnlikeParts) {
  const auto group = make_mpi_communicator(test::world());
  const int size = group->size();
  if (size == 1) GTEST_SKIP() << "a group of one sends nothing";
  Counts counts;
  for (int p = 0; p < size; ++p) counts.push_back(p);
  const int mine = group->rank();
  const int total = size * (size - 1) / 2;
  const Values part("part", static_cast<std::size_t>(mine));
  const Values whole("whole", static_cast<std::size_t>(total));
  group->all_gather_v(part, whole, counts);
  group->reduce_scatter_v(whole, part, counts);
  EXPECT_EQ(group->traffic().of(Exchange::kAllGather).bytes, 8.0 * (size - 1) * mine);
  EXPECT_EQ(group->traffic().of(Exchange::kReduceScatter).bytes, 8.0 * (total - mine));
}

TEST(Communicator, ViewsMustFitTheCounts) {
  const auto group = make_mpi_communicator(test::world());
  const std::size_t members = static_cast<std::size_t>(group->size());
  const Values part("part", 5), whole("whole", 5 * members),
      longer("longer", 5 * members + 1);
  const Counts equal(members, 5), fewer(members - 1, 5), negative(members, -5);
  EXPECT_EQ(id_of([&] { group->all_gather(part, longer); }), "PL0100");
  EXPECT_EQ(id_of([&] { group->reduce_scatter(longer, part); }), "PL0100");
  EXPECT_EQ(id_of([&] { group->all_gather_v(part, whole, fewer); }), "PL0100");
  EXPECT_EQ(id_of([&] { group->all_gather_v(part, whole, negative); }), "PL0100");
  EXPECT_EQ(id_of([&] { group->all_to_all_v(longer, equal, whole, equal); }), "PL0100");
  EXPECT_EQ(id_of([&] { group->send(part, group->rank(), 0).wait(); }), "PL0100");
  EXPECT_EQ(id_of([&] { group->receive(part, group->size(), 0).wait(); }), "PL0100");
}

// The memory is never touched: the count is refused first.
TEST(Communicator, MoreThanMpiCanCountIsRefused) {
  const auto group = make_mpi_communicator(test::world());
  if (group->size() == 1) GTEST_SKIP() << "a group of one copies without MPI";
  const std::int64_t huge = std::int64_t{1} << 31;
  Counts counts(static_cast<std::size_t>(group->size()), 0);
  counts.front() = huge;
  const HostView<std::uint8_t, 1> in_M(nullptr, static_cast<std::size_t>(huge));
  EXPECT_EQ(id_of([&] { group->all_to_all_v(in_M, counts, in_M, counts); }), "PL0803");
}

// A build for a GPU may have NCCL.
TEST(BackendChoice, WithoutNcclOnlyMpi) {
  if (!std::is_same_v<MemSpace, Kokkos::HostSpace>)
    GTEST_SKIP() << "for builds without a GPU";
  EXPECT_EQ(choose_backend(BackendKind::kAuto, test::world()), BackendKind::kMpi);
  EXPECT_EQ(choose_backend(BackendKind::kMpi, test::world()), BackendKind::kMpi);
  EXPECT_EQ(id_of([] { choose_backend(BackendKind::kNccl, test::world()); }), "PL0805");
}

TEST(Communicator, FailedCallsThrowWithThePlace) {
  const auto failing = [] { PLEAT_CHECK_MPI(MPI_ERR_RANK); };
  try {
    failing();
    FAIL() << "nothing was thrown";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.id(), "PL0810");
    EXPECT_THAT(error.what(), testing::HasSubstr("test_communicator.cpp"));
  }
}

}  // namespace
}  // namespace pleat::comm
