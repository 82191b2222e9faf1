// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Every collective against plain loops, for every element type.
///
/// Legend: P members, N elements of a part, M and R sums of counts. Values are small
/// whole numbers, so that every sum is exact in every type.

#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/tested_backend.hpp"
#include "pleat/comm/communicator.hpp"

namespace pleat::comm {
namespace {

using testing::ElementsAreArray;
using Counts = std::vector<std::int64_t>;

template <class T>
DeviceView<T, 1> on_device(const std::vector<T>& values) {
  const DeviceView<T, 1> x_N("x", values.size());
  const auto host_N = Kokkos::create_mirror_view(x_N);
  std::copy(values.begin(), values.end(), host_N.data());
  Kokkos::deep_copy(x_N, host_N);
  return x_N;
}

template <class View>
std::vector<typename View::non_const_value_type> on_host(const View& x_N) {
  const auto host_N = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), x_N);
  return {host_N.data(), host_N.data() + host_N.extent(0)};
}

// What member `from` holds at place i; at most 7 + 4 + 6 = 17, so that nine add up to
// less than 256.
template <class T>
T value(int from, std::int64_t i) {
  return static_cast<T>(from + i % 5 + 2 * (i % 4));
}

template <class T>
std::vector<T> values(int from, std::int64_t count) {
  std::vector<T> x_N;
  for (std::int64_t i = 0; i < count; ++i) x_N.push_back(value<T>(from, i));
  return x_N;
}

std::int64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::int64_t before(const Counts& counts, int member) {
  return std::accumulate(counts.begin(), counts.begin() + member, std::int64_t{0});
}

// Counts of a v-variant: all alike, unlike with zeros, one member only, none at all.
std::vector<Counts> tables_of_counts(int size) {
  std::vector<Counts> tables(4);
  for (std::int64_t p = 0; p < size; ++p) {
    tables[0].push_back(3);
    tables[1].push_back(p * 2 % 3);
    tables[2].push_back(p == size - 1 ? 5 : 0);
    tables[3].push_back(0);
  }
  return tables;
}

template <class T>
class Collectives : public testing::Test {
 protected:
  std::unique_ptr<Communicator> group_ = tested_group();
  int rank_ = group_->rank();
  int size_ = group_->size();

  std::int64_t part(const Counts& counts) const {
    return counts[static_cast<std::size_t>(rank_)];
  }

  std::vector<T> gathered(const Counts& counts) const {
    std::vector<T> all_M;
    for (int p = 0; p < size_; ++p) {
      for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(p)]; ++i) {
        all_M.push_back(value<T>(p, i));
      }
    }
    return all_M;
  }

  // This member's part of the sum of values(p, M).
  std::vector<T> scattered(const Counts& counts) const {
    std::vector<T> part_N;
    for (std::int64_t i = 0; i < part(counts); ++i) {
      int total = 0;
      for (int p = 0; p < size_; ++p) total += value<int>(p, before(counts, rank_) + i);
      part_N.push_back(static_cast<T>(total));
    }
    return part_N;
  }
};

using Elements =
    testing::Types<std::uint8_t, std::int32_t, std::int64_t, float, double, Bf16>;
TYPED_TEST_SUITE(Collectives, Elements);

// Numbers in bf16 are not reduced on every member.
template <class T>
class AllReductions : public Collectives<T> {};
using ReducedElements = testing::Types<std::uint8_t, std::int32_t, std::int64_t, float, double>;
TYPED_TEST_SUITE(AllReductions, ReducedElements);

TYPED_TEST(AllReductions, AllReduce) {
  using T = TypeParam;
  for (const std::int64_t count : {0, 1, 5, 3000}) {
    const auto sum_N = on_device(values<T>(this->rank_, count));
    const auto max_N = on_device(values<T>(this->rank_, count));
    this->group_->all_reduce(sum_N, Reduction::kSum);
    this->group_->all_reduce(max_N, Reduction::kMax);
    std::vector<T> total_N;
    for (std::int64_t i = 0; i < count; ++i) {
      int total = 0;
      for (int p = 0; p < this->size_; ++p) total += value<int>(p, i);
      total_N.push_back(static_cast<T>(total));
    }
    EXPECT_THAT(on_host(sum_N), ElementsAreArray(total_N));
    EXPECT_THAT(on_host(max_N), ElementsAreArray(values<T>(this->size_ - 1, count)));
  }
}

TYPED_TEST(AllReductions, OfOneValue) {
  using T = TypeParam;
  const int n = this->size_;
  EXPECT_EQ(
      this->group_->all_reduce_value(static_cast<T>(this->rank_ + 1), Reduction::kSum),
      static_cast<T>(n * (n + 1) / 2));
  EXPECT_EQ(
      this->group_->all_reduce_value(static_cast<T>(this->rank_ + 1), Reduction::kMax),
      static_cast<T>(n));
}

TYPED_TEST(Collectives, BroadcastFromEachMember) {
  using T = TypeParam;
  for (int root = 0; root < this->size_; ++root) {
    const auto x_N = on_device(values<T>(this->rank_, 7));
    this->group_->broadcast(x_N, root);
    EXPECT_THAT(on_host(x_N), ElementsAreArray(values<T>(root, 7)));
  }
}

TYPED_TEST(Collectives, AllGather) {
  using T = TypeParam;
  for (const std::int64_t count : {0, 1, 4, 1000}) {
    const Counts counts(static_cast<std::size_t>(this->size_), count);
    const auto in_N = on_device(values<T>(this->rank_, count));
    const DeviceView<T, 1> out_PN("out", static_cast<std::size_t>(sum(counts)));
    this->group_->all_gather(DeviceView<const T, 1>(in_N), out_PN);
    EXPECT_THAT(on_host(out_PN), ElementsAreArray(this->gathered(counts)));
  }
}

TYPED_TEST(Collectives, AllGatherOfUnlikeParts) {
  using T = TypeParam;
  for (const Counts& counts : tables_of_counts(this->size_)) {
    const auto in_N = on_device(values<T>(this->rank_, this->part(counts)));
    const DeviceView<T, 1> out_M("out", static_cast<std::size_t>(sum(counts)));
    this->group_->all_gather_v(in_N, out_M, counts);
    EXPECT_THAT(on_host(out_M), ElementsAreArray(this->gathered(counts)));
  }
}

TYPED_TEST(Collectives, AllGatherInPlace) {
  using T = TypeParam;
  for (const Counts& counts : tables_of_counts(this->size_)) {
    const DeviceView<T, 1> out_M("out", static_cast<std::size_t>(sum(counts)));
    const std::int64_t first = before(counts, this->rank_);
    const auto own_N =
        Kokkos::subview(out_M, Kokkos::make_pair(first, first + this->part(counts)));
    Kokkos::deep_copy(own_N, on_device(values<T>(this->rank_, this->part(counts))));
    this->group_->all_gather_v(own_N, out_M, counts);
    EXPECT_THAT(on_host(out_M), ElementsAreArray(this->gathered(counts)));
  }
}

TYPED_TEST(Collectives, ReduceScatter) {
  using T = TypeParam;
  for (const std::int64_t count : {0, 1, 4, 1000}) {
    const Counts counts(static_cast<std::size_t>(this->size_), count);
    const auto in_PN = on_device(values<T>(this->rank_, sum(counts)));
    const DeviceView<T, 1> out_N("out", static_cast<std::size_t>(count));
    this->group_->reduce_scatter(DeviceView<const T, 1>(in_PN), out_N);
    EXPECT_THAT(on_host(out_N), ElementsAreArray(this->scattered(counts)));
    EXPECT_THAT(on_host(in_PN), ElementsAreArray(values<T>(this->rank_, sum(counts))));
  }
}

TYPED_TEST(Collectives, ReduceScatterOfUnlikeParts) {
  using T = TypeParam;
  for (const Counts& counts : tables_of_counts(this->size_)) {
    const auto in_M = on_device(values<T>(this->rank_, sum(counts)));
    const DeviceView<T, 1> out_N("out", static_cast<std::size_t>(this->part(counts)));
    this->group_->reduce_scatter_v(in_M, out_N, counts);
    EXPECT_THAT(on_host(out_N), ElementsAreArray(this->scattered(counts)));
  }
}

TYPED_TEST(Collectives, ReduceScatterInPlace) {
  using T = TypeParam;
  for (const Counts& counts : tables_of_counts(this->size_)) {
    const auto in_M = on_device(values<T>(this->rank_, sum(counts)));
    const std::int64_t first = before(counts, this->rank_);
    const auto own_N =
        Kokkos::subview(in_M, Kokkos::make_pair(first, first + this->part(counts)));
    this->group_->reduce_scatter_v(in_M, own_N, counts);
    EXPECT_THAT(on_host(own_N), ElementsAreArray(this->scattered(counts)));
  }
}

// 256 and ones: whoever rounds at every member never gets beyond 256.
TEST(SumsInBf16, RoundOnce) {
  const auto group = tested_group();
  const auto size = static_cast<std::size_t>(group->size());
  constexpr std::size_t kCount = 5000;
  const std::vector<Bf16> in(size * kCount, Bf16(group->rank() == 0 ? 256 : 1));
  const DeviceView<Bf16, 1> out_N("out", kCount);
  group->reduce_scatter(on_device(in), out_N);
  const std::vector<Bf16> expected(kCount, Bf16(255 + group->size()));
  EXPECT_THAT(on_host(out_N), ElementsAreArray(expected));
}

// Member r sends (r + 2 q) % 3 elements to member q: unlike in both directions, with
// zeros.
TYPED_TEST(Collectives, AllToAll) {
  using T = TypeParam;
  const auto count = [](int from, int to) { return (from + 2 * to) % 3; };
  const auto element = [](int from, int to, int i) {
    return static_cast<T>(from * 11 + to * 3 + i);
  };
  Counts send_counts, recv_counts;
  std::vector<T> in_M, expected_R;
  for (int p = 0; p < this->size_; ++p) {
    send_counts.push_back(count(this->rank_, p));
    recv_counts.push_back(count(p, this->rank_));
    for (int i = 0; i < send_counts.back(); ++i)
      in_M.push_back(element(this->rank_, p, i));
    for (int i = 0; i < recv_counts.back(); ++i)
      expected_R.push_back(element(p, this->rank_, i));
  }
  const DeviceView<T, 1> out_R("out", expected_R.size());
  this->group_->all_to_all_v(on_device(in_M), send_counts, out_R, recv_counts);
  EXPECT_THAT(on_host(out_R), ElementsAreArray(expected_R));
}

TYPED_TEST(Collectives, AllToAllOfNothing) {
  using T = TypeParam;
  const Counts none(static_cast<std::size_t>(this->size_), 0);
  const DeviceView<T, 1> in_M("in", 0), out_R("out", 0);
  this->group_->all_to_all_v(in_M, none, out_R, none);
  EXPECT_EQ(this->group_->traffic().of(Exchange::kAllToAll).bytes, 0.0);
}

TYPED_TEST(Collectives, BetweenHostAndDevice) {
  using T = TypeParam;
  const Counts counts(static_cast<std::size_t>(this->size_), 4);
  const HostView<T, 1> host_N("host", 4), host_M("host", 4 * counts.size());
  const DeviceView<T, 1> device_M("device", 4 * counts.size());
  Kokkos::deep_copy(host_N, on_device(values<T>(this->rank_, 4)));
  this->group_->all_gather(host_N, device_M);
  this->group_->all_gather(on_device(values<T>(this->rank_, 4)), host_M);
  EXPECT_THAT(on_host(device_M), ElementsAreArray(this->gathered(counts)));
  EXPECT_THAT(on_host(host_M), ElementsAreArray(this->gathered(counts)));
}

}  // namespace
}  // namespace pleat::comm
