// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference.hpp"
#include "pleat/kernels/peak.hpp"

namespace pleat::test {
namespace {

template <class T>
class Peak : public testing::Test {};
TYPED_TEST_SUITE(Peak, Scalars);

TYPED_TEST(Peak, TriadEqualsTheReference) {
  using T = TypeParam;
  constexpr Index kCount = 1591;
  const Values b = random_values(kCount, 1), c = random_values(kCount, 2);
  const auto a_N = to_device<T>(Values(kCount), kCount);
  kernels::triad<T>(ExecSpace(), T(0.5), to_device<T>(b, kCount), to_device<T>(c, kCount),
                    a_N);
  Values expected(kCount);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = b[i] + 0.5 * c[i];
  expect_close(to_host(a_N), expected, tolerance<T>(), "a_N");
}

TYPED_TEST(Peak, MultiplyAddsAreDoneAndCounted) {
  using T = TypeParam;
  const ExecSpace exec;
  const Index threads = kernels::multiply_add_threads(exec);
  const auto sums_N = to_device<T>(Values(threads), threads);
  const double few = kernels::multiply_add_loop<T>(exec, 64, sums_N);
  const Values sums = to_host(sums_N);
  EXPECT_EQ(kernels::multiply_add_loop<T>(exec, 128, sums_N), 2.0 * few);
  // Each chain x = x / 2 + 1 / 2 has come to 1: their sum is how many there are.
  EXPECT_NEAR(sums.front(), few / (2.0 * 64.0 * static_cast<double>(threads)),
              1.0e-3 * sums.front());
}

}  // namespace
}  // namespace pleat::test
