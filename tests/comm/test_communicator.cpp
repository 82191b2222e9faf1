// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/error.hpp"
#include "pleat/comm/check_mpi.hpp"
#include "pleat/comm/communicator.hpp"
#include "support/world.hpp"

namespace pleat::comm {
namespace {

template <class T>
class Collectives : public testing::Test {};
using Elements = testing::Types<std::uint8_t, std::int32_t, std::int64_t, float, double>;
TYPED_TEST_SUITE(Collectives, Elements);

// Member r holds (r + 1) (i + 1): small whole numbers, so every sum is exact.
template <class T>
HostView<T, 1> ramp(int rank) {
  HostView<T, 1> x_N("x", 5);
  for (int i = 0; i < 5; ++i) x_N(i) = static_cast<T>((rank + 1) * (i + 1));
  return x_N;
}

TYPED_TEST(Collectives, SumOverHostView) {
  const auto group = make_mpi_communicator(test::world());
  const int n = group->size();
  const auto x_N = ramp<TypeParam>(group->rank());
  group->all_reduce(x_N, Reduction::kSum);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(x_N(i), static_cast<TypeParam>(n * (n + 1) / 2 * (i + 1)));
  }
}

TYPED_TEST(Collectives, MaximumOverDeviceView) {
  const auto group = make_mpi_communicator(test::world());
  const DeviceView<TypeParam, 1> x_N("x", 5);
  Kokkos::deep_copy(x_N, ramp<TypeParam>(group->rank()));
  group->all_reduce(x_N, Reduction::kMax);
  const auto host_N = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), x_N);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(host_N(i), static_cast<TypeParam>(group->size() * (i + 1)));
  }
}

TYPED_TEST(Collectives, BroadcastFromTheLastMember) {
  const auto group = make_mpi_communicator(test::world());
  const auto x_N = ramp<TypeParam>(group->rank());
  group->broadcast(x_N, group->size() - 1);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(x_N(i), static_cast<TypeParam>(group->size() * (i + 1)));
  }
}

TEST(Communicator, SingleValues) {
  const auto group = make_mpi_communicator(test::world());
  const std::int64_t n = group->size();
  EXPECT_EQ(group->all_reduce_value<std::int64_t>(group->rank() + 1, Reduction::kSum),
            n * (n + 1) / 2);
  EXPECT_EQ(group->all_reduce_value(-1.5 * group->rank(), Reduction::kMax), 0.0);
  group->barrier();
}

TEST(Communicator, EmptyViewsAreOrdinary) {
  const auto group = make_mpi_communicator(test::world());
  const HostView<double, 1> none_N("none", 0);
  group->all_reduce(none_N, Reduction::kSum);
  group->broadcast(none_N, 0);
  EXPECT_EQ(none_N.extent(0), 0U);
}

TEST(Communicator, SelfLeavesValuesAlone) {
  const auto group = make_self_communicator();
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->size(), 1);
  const auto x_N = ramp<double>(3);
  group->all_reduce(x_N, Reduction::kSum);
  group->broadcast(x_N, 0);
  group->barrier();
  EXPECT_EQ(x_N(4), 20.0);
  EXPECT_EQ(group->all_reduce_value(2.5, Reduction::kMax), 2.5);
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
