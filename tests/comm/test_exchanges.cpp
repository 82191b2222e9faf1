// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Exchanges under way at the same time, messages between pairs, and equal bits.

#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "comm/tested_backend.hpp"
#include "pleat/base/error.hpp"
#include "pleat/comm/communicator.hpp"

namespace pleat::comm {
namespace {

using Counts = std::vector<std::int64_t>;
using Values = HostView<double, 1>;

class Exchanges : public testing::Test {
 protected:
  std::unique_ptr<Communicator> group_ = tested_group();
  int rank_ = group_->rank();
  int size_ = group_->size();
  int next_ = (rank_ + 1) % size_;
  int previous_ = (rank_ + size_ - 1) % size_;

  Values filled(std::size_t count, double value) const {
    const Values x_N("x", count);
    Kokkos::deep_copy(x_N, value);
    return x_N;
  }
  std::size_t members() const { return static_cast<std::size_t>(size_); }
};

TEST_F(Exchanges, SeveralUnderWayAndWaitedForBackwards) {
  const std::size_t n = 100;
  const Counts counts(members(), static_cast<std::int64_t>(n));
  const Values reduced = filled(n, rank_ + 1), largest = filled(n, rank_);
  const Values part = filled(n, rank_), gathered = filled(n * members(), -1);
  const Values whole = filled(n * members(), 2), scattered = filled(n, -1);
  const Values sent = filled(n * members(), rank_), exchanged = filled(n * members(), -1);
  Pending a = group_->start_all_reduce(reduced, Reduction::kSum);
  Pending b = group_->start_all_gather(part, gathered);
  Pending c = group_->start_reduce_scatter(whole, scattered);
  Pending d = group_->start_all_to_all_v(sent, counts, exchanged, counts);
  Pending e = group_->start_all_reduce(largest, Reduction::kMax);
  for (Pending* pending : {&e, &d, &c, &b, &a}) pending->wait();
  for (std::size_t i = 0; i < n; ++i) {
    ASSERT_EQ(reduced(i), size_ * (size_ + 1) / 2);
    ASSERT_EQ(largest(i), size_ - 1);
    ASSERT_EQ(scattered(i), 2 * size_);
    for (std::size_t p = 0; p < members(); ++p) {
      ASSERT_EQ(gathered(p * n + i), static_cast<double>(p));
      ASSERT_EQ(exchanged(p * n + i), static_cast<double>(p));
    }
  }
}

// Without overlap the values are there when the start returns, and the wait is counted.
TEST_F(Exchanges, FinishedAtTheirStartWithoutOverlap) {
  if (size_ == 1) GTEST_SKIP() << "needs two ranks";
  if (kTested == BackendKind::kNccl) GTEST_SKIP() << "waits are queued, not waited for";
  group_->forgo_overlap();
  const auto part = group_->split(0, "part");
  const double waited = part->waited_seconds();
  const Values x_N = filled(10, rank_), got_N = filled(10, -1);
  Pending sum = part->start_all_reduce(x_N, Reduction::kSum);
  EXPECT_TRUE(sum.done());
  EXPECT_EQ(x_N(9), size_ * (size_ - 1) / 2);
  const Values sent_N = filled(10, rank_);
  Pending sent = part->send(sent_N, next_, 0);
  Pending received = part->receive(got_N, previous_, 0);
  EXPECT_TRUE(received.done());
  EXPECT_FALSE(sent.done());
  EXPECT_EQ(got_N(9), previous_);
  EXPECT_GT(part->waited_seconds(), waited);
}

// Tags keep the messages of a pair apart, whatever the order in which they are awaited;
// messages of one tag arrive in order.
TEST_F(Exchanges, RingWithTags) {
  if (size_ == 1) GTEST_SKIP() << "needs two ranks";
  if (kTested == BackendKind::kNccl) GTEST_SKIP() << "NCCL has no tags";
  const Values first = filled(3, rank_), second = filled(3, rank_ + 100);
  const Values other = filled(5, rank_ + 200);
  const Values got_first = filled(3, -1), got_second = filled(3, -1),
               got_other = filled(5, -1);
  Pending from_other = group_->receive(got_other, previous_, 2);
  Pending from_first = group_->receive(got_first, previous_, 1);
  Pending from_second = group_->receive(got_second, previous_, 1);
  Pending to_first = group_->send(first, next_, 1);
  Pending to_second = group_->send(second, next_, 1);
  Pending to_other = group_->send(other, next_, 2);
  from_second.wait();
  from_first.wait();
  from_other.wait();
  EXPECT_EQ(got_first(2), previous_);
  EXPECT_EQ(got_second(2), previous_ + 100);
  EXPECT_EQ(got_other(4), previous_ + 200);
}

// Keys and values go once around; every member sees every block.
TEST_F(Exchanges, RingAllTheWayAround) {
  if (size_ == 1) GTEST_SKIP() << "needs two ranks";
  Values mine = filled(1000, rank_), incoming = filled(1000, -1);
  for (int step = 1; step < size_; ++step) {
    Pending arriving = group_->receive(incoming, previous_, step);
    Pending leaving = group_->send(mine, next_, step);
    leaving.wait();
    arriving.wait();
    std::swap(mine, incoming);
    EXPECT_EQ(mine(999), (rank_ + size_ - step) % size_);
  }
}

TEST_F(Exchanges, EmptyMessages) {
  if (size_ == 1) GTEST_SKIP() << "needs two ranks";
  const Values none("none", 0);
  Pending arriving = group_->receive(none, previous_, 0);
  group_->send(none, next_, 0).wait();
  arriving.wait();
  EXPECT_TRUE(arriving.done());
}

TEST_F(Exchanges, MessageOfAnotherLengthIsAnError) {
  if (size_ == 1) GTEST_SKIP() << "needs two ranks";
  if (kTested == BackendKind::kNccl) GTEST_SKIP() << "NCCL does not tell";
  const Values longer = filled(4, -1);
  Pending arriving = group_->receive(longer, previous_, 0);
  group_->send(filled(3, 1), next_, 0).wait();
  try {
    arriving.wait();
    FAIL() << "nothing was thrown";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.id(), "PL0804");
  }
}

TEST_F(Exchanges, DestructorAndAssignmentWait) {
  const Values first = filled(10, 1), second = filled(10, 1);
  {
    Pending pending = group_->start_all_reduce(first, Reduction::kSum);
    pending = group_->start_all_reduce(second, Reduction::kSum);
    EXPECT_EQ(first(9), size_);
    const Pending moved = std::move(pending);
    EXPECT_TRUE(pending.done());
  }
  EXPECT_EQ(second(9), size_);
}

// Values of very unlike size: any other order of the sum gives other bits.
Values rough_values(int rank, std::size_t count) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 17);
  std::uniform_real_distribution<double> mantissa(-1.0, 1.0);
  std::uniform_int_distribution<int> exponent(-20, 20);
  const Values x_N("x", count);
  for (std::size_t i = 0; i < count; ++i) {
    x_N(i) = std::ldexp(mantissa(random), exponent(random));
  }
  return x_N;
}

bool same_bits(const double* a, const double* b, std::size_t count) {
  return std::memcmp(a, b, count * sizeof(double)) == 0;
}

TEST_F(Exchanges, SumsHaveTheSameBitsOnEveryMemberAndTwice) {
  for (const std::size_t count : {1UL, 7UL, 512UL, 4097UL, 100000UL}) {
    const Values once = rough_values(rank_, count), twice = rough_values(rank_, count);
    group_->all_reduce(once, Reduction::kSum);
    group_->all_reduce(twice, Reduction::kSum);
    EXPECT_TRUE(same_bits(once.data(), twice.data(), count)) << count;
    const Values everyone("everyone", count * members());
    group_->all_gather(once, everyone);
    for (std::size_t p = 0; p < members(); ++p) {
      EXPECT_TRUE(same_bits(once.data(), everyone.data() + p * count, count))
          << count << " elements, member " << p;
    }
  }
}

TEST_F(Exchanges, ScatteredSumsHaveTheSameBitsTwice) {
  for (const std::size_t count : {1UL, 512UL, 20000UL}) {
    const Values in_PN = rough_values(rank_, count * members());
    const Values once("once", count), twice("twice", count);
    group_->reduce_scatter(in_PN, once);
    group_->reduce_scatter(in_PN, twice);
    EXPECT_TRUE(same_bits(once.data(), twice.data(), count)) << count;
    // In place, and with the counts given, as well.
    const std::size_t first = static_cast<std::size_t>(rank_) * count;
    const Values own_N = Kokkos::subview(in_PN, std::make_pair(first, first + count));
    group_->reduce_scatter_v(in_PN, own_N,
                             Counts(members(), static_cast<std::int64_t>(count)));
    EXPECT_TRUE(same_bits(once.data(), own_N.data(), count)) << count;
  }
}

}  // namespace
}  // namespace pleat::comm
