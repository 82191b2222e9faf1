// SPDX-License-Identifier: Apache-2.0
// Matrix products against plain loops, whatever library does them.
#include "gemm_cublaslt.hpp"
#include "gemm_onednn.hpp"
#include "gemm_portable.hpp"
#include "gemm_problems.hpp"
#include "pleat/base/error.hpp"

namespace pleat::test {
namespace {

template <class T>
class Gemm : public testing::Test {};
TYPED_TEST_SUITE(Gemm, Storages);

/// Runs `multiply` on every problem and compares with plain loops.
/// \param alpha  instead of the problem's, unless 0 \param least  smallest extent
template <class T, class C, class Multiply>
void expect_products(const Multiply& multiply, double alpha = 0.0, Index least = 0) {
  using A = Accumulator<T>;
  for (GemmProblem p : gemm_problems()) {
    if (std::min({p.m, p.n, p.k}) < least) continue;
    if (alpha != 0.0) p.alpha = alpha;
    const Values a = random_values<T>(p.m * p.k, 1);
    const Values b = random_values<T>(p.k * p.n, 2);
    // beta = 0 must not let what was in c through.
    const Values c = p.beta == 0.0 ? Values(p.m * p.n, std::nan("")) : random_values<C>(p.m * p.n, 3);
    const auto a_view = is_yes(p.transpose_a) ? to_device<T>(a, p.k, p.m)
                                              : to_device<T>(a, p.m, p.k);
    const auto b_view = is_yes(p.transpose_b) ? to_device<T>(b, p.n, p.k)
                                              : to_device<T>(b, p.k, p.n);
    const auto c_MN = to_device<C>(c, p.m, p.n);
    multiply(ExecSpace(), p.transpose_a, p.transpose_b, A(p.alpha), a_view, b_view, A(p.beta),
             c_MN);
    expect_close(to_host(c_MN), reference_gemm(p, a, b, c), tolerance<C>(), describe(p));
  }
}

TYPED_TEST(Gemm, EqualsPlainLoops) {
  using T = TypeParam;
  expect_products<T, T>(kernels::gemm<T, T>);
  if constexpr (std::is_same_v<T, Bf16>) expect_products<T, float>(kernels::gemm<T, float>);
}

TYPED_TEST(Gemm, PortableKernelEqualsPlainLoops) {
  using T = TypeParam;
  expect_products<T, T>(kernels::portable_gemm<T, T>);
  if constexpr (std::is_same_v<T, Bf16>) {
    expect_products<T, float>(kernels::portable_gemm<T, float>);
  }
}

#if defined(PLEAT_ONEDNN_GEMM)
/// The product by oneDNN, however it is done on this CPU.
template <class T, class C>
void multiply_by_onednn(const ExecSpace&, Transpose transpose_a, Transpose transpose_b,
                        Accumulator<T>, const DeviceView<const T, 2>& a,
                        const DeviceView<const T, 2>& b, Accumulator<T> beta,
                        const DeviceView<C, 2>& c_MN) {
  const kernels::HostProduct<T, T, C> product{
      .m = c_MN.extent_int(0),
      .n = c_MN.extent_int(1),
      .k = a.extent_int(is_yes(transpose_a) ? 0 : 1),
      .transpose_a = transpose_a,
      .transpose_b = transpose_b,
      .a = a.data(),
      .a_stride = a.extent_int(1),
      .b = b.data(),
      .b_stride = b.extent_int(1),
      .beta = beta,
      .c = c_MN.data(),
      .c_stride = c_MN.extent_int(1)};
  ASSERT_TRUE(kernels::onednn_gemm(product));
}

TEST(GemmByOneDnn, EqualsPlainLoops) {
  expect_products<float, float>(multiply_by_onednn<float, float>, 1.0, 1);
  if (!kernels::has_fast_bf16()) GTEST_SKIP() << "this CPU does not multiply in bf16";
  expect_products<Bf16, Bf16>(multiply_by_onednn<Bf16, Bf16>, 1.0, 1);
  expect_products<Bf16, float>(multiply_by_onednn<Bf16, float>, 1.0, 1);
}
#endif

// 512.5 has no place in bf16: whoever rounds on the way loses the half.
TEST(GemmInBf16, RoundsTheSumOnce) {
  Values a(1024, 1.0), b(1024, 1.0);
  b[0] = 1.5;
  std::fill(b.begin() + 512, b.end(), -1.0);
  for (const double beta : {0.0, 1.0}) {
    const auto c_MN = to_device<Bf16>(Values{0.25}, 1, 1);
    kernels::gemm<Bf16>(ExecSpace(), Transpose::kNo, Transpose::kYes, 1.0F,
                        to_device<Bf16>(a, 1, 1024), to_device<Bf16>(b, 1, 1024),
                        static_cast<float>(beta), c_MN);
    expect_same(to_host(c_MN), {0.5 + 0.25 * beta}, "sum");
  }
}

TYPED_TEST(Gemm, RefusesShapesThatDoNotFit) {
  using T = TypeParam;
  const DeviceView<T, 2> a("a", 3, 4), b("b", 5, 6), c("c", 3, 6);
  const auto multiply = [&] {
    kernels::gemm<T>(ExecSpace(), Transpose::kNo, Transpose::kNo, T(1), a, b, T(0), c);
  };
  EXPECT_THROW(multiply(), InternalError);
}

/// Offsets of groups of those sizes.
struct Groups {
  std::vector<std::int64_t> host{0};
  DeviceView<std::int64_t, 1> device;
  explicit Groups(const std::vector<Index>& sizes) {
    for (const Index size : sizes) host.push_back(host.back() + size);
    device = to_device<std::int64_t>(host, host.size());
  }
  kernels::GroupOffsets offsets() const { return {host, device}; }
  Index rows() const { return host.back(); }
  Index count() const { return static_cast<Index>(host.size()) - 1; }
};

const std::vector<std::vector<Index>>& group_sizes() {
  static const std::vector<std::vector<Index>> sizes = {
      {5}, {0}, {0, 0, 0}, {1, 0, 3, 7}, {0, 64, 65}, {300, 1, 0, 17, 129, 0}, {0, 0, 8, 0, 0}, {2, 2, 2, 2, 2, 2},
      // More than the threads of a CPU take whole, with last ones that are worth sharing.
      std::vector<Index>(40, 190)};
  return sizes;
}

Values part(const Values& values, Index begin, Index end) {
  return Values(values.begin() + begin, values.begin() + end);
}

template <class T>
class GroupedGemm : public testing::Test {};
TYPED_TEST_SUITE(GroupedGemm, Storages);

/// Widths of rows: any, and such as GPUs multiply all groups of in one call.
const std::vector<std::pair<Index, Index>>& group_widths() {
  static const std::vector<std::pair<Index, Index>> widths = {{19, 23}, {32, 48}};
  return widths;
}

/// Calls `test` for every way that the products of groups go in this build.
template <class Test>
void for_every_way(const Test& test) {
#if defined(PLEAT_CUBLASLT_GEMM)
  for (const bool one_by_one : {true, false}) {
    kernels::set_groups_one_by_one(one_by_one);
    const std::string way = kernels::cublaslt_grouped_way();
    SCOPED_TRACE(way);
    test();
    EXPECT_EQ(kernels::cublaslt_grouped_way(), way);  // no wrong sums were noticed
  }
#else
  test();
#endif
}

Values reference_rows(const Groups& groups, Index n, Index k, Transpose transpose,
                      const Values& a, const Values& b, const Values& c) {
  Values expected;
  for (Index e = 0; e < groups.count(); ++e) {
    const Index begin = groups.host[e], end = groups.host[e + 1];
    const Values block = reference_gemm(
        {end - begin, n, k, Transpose::kNo, transpose, 1.5, -1.0},
        part(a, begin * k, end * k), part(b, e * n * k, (e + 1) * n * k),
        part(c, begin * n, end * n));
    expected.insert(expected.end(), block.begin(), block.end());
  }
  return expected;
}

template <class T>
void expect_rows(const Groups& groups, Index n, Index k, Transpose transpose) {
  const Values a = random_values<T>(groups.rows() * k, 4);
  const Values b = random_values<T>(groups.count() * n * k, 5);
  const Values c = random_values<T>(groups.rows() * n, 6);
  const auto c_RN = to_device<T>(c, groups.rows(), n);
  const auto b_view = is_yes(transpose) ? to_device<T>(b, groups.count(), n, k)
                                        : to_device<T>(b, groups.count(), k, n);
  kernels::grouped_gemm_rows<T>(ExecSpace(), transpose, 1.5,
                                to_device<T>(a, groups.rows(), k), b_view, -1, c_RN,
                                groups.offsets());
  expect_close(to_host(c_RN), reference_rows(groups, n, k, transpose, a, b, c),
               tolerance<T>(), "rows");
}

TYPED_TEST(GroupedGemm, RowsEqualPlainLoops) {
  for_every_way([] {
    for (const auto& sizes : group_sizes()) {
      for (const auto& [n, k] : group_widths()) {
        for (const Transpose transpose : {Transpose::kNo, Transpose::kYes}) {
          expect_rows<TypeParam>(Groups(sizes), n, k, transpose);
        }
      }
    }
  });
}

Values reference_weights(const Groups& groups, Index m, Index n, double beta,
                         const Values& a, const Values& b, const Values& c) {
  Values expected;
  for (Index e = 0; e < groups.count(); ++e) {
    const Index begin = groups.host[e], end = groups.host[e + 1];
    const Values block = reference_gemm(
        {m, n, end - begin, Transpose::kYes, Transpose::kNo, 0.5, beta},
        part(a, begin * m, end * m), part(b, begin * n, end * n),
        part(c, e * m * n, (e + 1) * m * n));
    expected.insert(expected.end(), block.begin(), block.end());
  }
  return expected;
}

template <class T>
void expect_weights(const Groups& groups, Index m, Index n, double beta) {
  const Values a = random_values<T>(groups.rows() * m, 7);
  const Values b = random_values<T>(groups.rows() * n, 8);
  // beta = 0 must not let what was in c through.
  const Index count = groups.count() * m * n;
  const Values c = beta == 0.0 ? Values(count, std::nan("")) : random_values<Gradient<T>>(count, 9);
  const auto c_EMN = to_device<Gradient<T>>(c, groups.count(), m, n);
  kernels::grouped_gemm_weights<T>(ExecSpace(), 0.5, to_device<T>(a, groups.rows(), m),
                                   to_device<T>(b, groups.rows(), n), beta, c_EMN,
                                   groups.offsets());
  expect_close(to_host(c_EMN), reference_weights(groups, m, n, beta, a, b, c),
               tolerance<Gradient<T>>(), "weights");
}

// A step's first backward pass has beta = 0, the others have 1.
TYPED_TEST(GroupedGemm, WeightsEqualPlainLoops) {
  for_every_way([] {
    for (const auto& sizes : group_sizes()) {
      for (const auto& [m, n] : group_widths()) {
        for (const double beta : {0.0, 1.0, -2.0}) {
          expect_weights<TypeParam>(Groups(sizes), m, n, beta);
        }
      }
    }
  });
}

TYPED_TEST(GroupedGemm, RefusesOffsetsThatDoNotFit) {
  using T = TypeParam;
  const Groups groups({2, 3});
  const DeviceView<T, 2> a_RK("a", 4, 2), c_RN("c", 4, 2);
  const DeviceView<T, 3> b("b", 2, 2, 2);
  const auto multiply = [&] {
    kernels::grouped_gemm_rows<T>(ExecSpace(), Transpose::kNo, T(1), a_RK, b, T(0), c_RN,
                                  groups.offsets());
  };
  EXPECT_THROW(multiply(), InternalError);
}

}  // namespace
}  // namespace pleat::test
