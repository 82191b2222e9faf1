// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief NCCL itself, on a single GPU: a communicator of one member, whose exchanges
/// must be copies. Several members over the stand-in: tests/comm.

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "backend.hpp"
#include "kernels/reference.hpp"
#include "pleat/base/copy.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

using comm::Element;
using comm::Reduction;

class NcclOnOneRank : public testing::Test {
 protected:
  static constexpr Index kCount = 1000;
  std::unique_ptr<comm::detail::Backend> nccl_ =
      comm::detail::make_nccl_backend(world(), "one rank", false);
  const std::array<std::int64_t, 1> counts_{kCount};
};

TEST_F(NcclOnOneRank, SumsAndBroadcastsChangeNothing) {
  const Values x = random_values<float>(kCount, 1);
  const auto x_N = to_device<float>(x, kCount);
  nccl_->all_reduce(x_N.data(), kCount, Element::kFloat, Reduction::kSum).wait();
  nccl_->all_reduce(x_N.data(), kCount, Element::kFloat, Reduction::kMax).wait();
  nccl_->broadcast(x_N.data(), kCount, Element::kFloat, 0).wait();
  nccl_->all_gather(x_N.data(), counts_, Element::kFloat).wait();
  expect_same(to_host(x_N), x, "fp32");
}

TEST_F(NcclOnOneRank, ReduceScatterCopies) {
  const Values x = random_values<double>(kCount, 2);
  const auto x_N = to_device<double>(x, kCount);
  const DeviceView<double, 1> y_N("y", kCount);
  nccl_->reduce_scatter(x_N.data(), y_N.data(), counts_, Element::kDouble).wait();
  expect_same(to_host(y_N), x, "fp64");
}

TEST_F(NcclOnOneRank, ReduceScatterInBf16AddsPartsInAKernel) {
  const Values x = random_values<Bf16>(kCount, 3);
  const auto x_N = to_device<Bf16>(x, kCount);
  const DeviceView<Bf16, 1> y_N("y", kCount);
  nccl_->reduce_scatter(x_N.data(), y_N.data(), counts_, Element::kBf16).wait();
  expect_same(to_host(y_N), x, "bf16");
}

TEST_F(NcclOnOneRank, AllToAllSendsToItself) {
  const Values x = random_values<Bf16>(kCount, 4);
  const auto x_N = to_device<Bf16>(x, kCount);
  const DeviceView<Bf16, 1> y_N("y", kCount);
  nccl_->all_to_all(x_N.data(), counts_, y_N.data(), counts_, Element::kBf16).wait();
  expect_same(to_host(y_N), x, "bf16");
}

// A kernel that is queued before the exchange writes what it sends.
TEST_F(NcclOnOneRank, ExchangesFollowTheExecutionSpace) {
  const DeviceView<double, 1> x_N("x", kCount);
  const DeviceView<double, 1> y_N("y", kCount);
  fill_tensor(ExecSpace(), x_N, 7.0);
  nccl_->all_to_all(x_N.data(), counts_, y_N.data(), counts_, Element::kDouble).wait();
  expect_same(to_host(y_N), Values(kCount, 7.0), "what was sent");
}

}  // namespace
}  // namespace pleat::test
