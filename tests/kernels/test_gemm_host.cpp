// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The ways to a product in host memory, each by itself: a build takes only one of
/// them. Every matrix is part of a wider one and ends with its memory, so that the
/// sanitizers see whoever reads or writes beside it.
#include <memory>
#include <set>
#include <type_traits>
#include <vector>

#include "gemm_blas.hpp"
#include "gemm_packed.hpp"
#include "gemm_problems.hpp"

namespace pleat::test {
namespace {

using kernels::HostProduct;

/// rows x columns within rows of `stride` elements; what lies between holds NaN.
template <class T>
class Part {
 public:
  Part(const Values& values, Index rows, Index columns)
      : rows_(rows),
        columns_(columns),
        count_(rows == 0 ? 0 : (rows - 1) * stride() + columns),
        elements_(std::make_unique<T[]>(static_cast<std::size_t>(count_))) {
    for (Index e = 0; e < count_; ++e) elements_[e] = static_cast<T>(std::nan(""));
    for (Index e = 0; e < rows * columns; ++e) at(e) = static_cast<T>(values[e]);
  }
  T* data() const { return elements_.get(); }
  Index stride() const { return columns_ + 3; }
  Values values() const {
    Values values(static_cast<std::size_t>(rows_ * columns_));
    for (Index e = 0; e < rows_ * columns_; ++e) values[e] = static_cast<double>(at(e));
    return values;
  }
  bool gaps_are_untouched() const {
    for (Index e = 0; e < count_; ++e) {
      if (e % stride() >= columns_ && !std::isnan(static_cast<double>(elements_[e])))
        return false;
    }
    return true;
  }

 private:
  T& at(Index element) const {
    return elements_[element / columns_ * stride() + element % columns_];
  }
  Index rows_, columns_, count_;
  std::unique_ptr<T[]> elements_;
};

/// Whoever sums in fp32 and rounds to bf16, or sums fp32 numbers that were rounded, may
/// err by the rounding of the result alone.
template <class A, class B, class C, class Multiply>
void expect_products(const Multiply& multiply) {
  for (const GemmProblem& p : gemm_problems()) {
    if (std::min({p.m, p.n, p.k}) == 0) continue;  // never handed to them
    const bool ta = is_yes(p.transpose_a), tb = is_yes(p.transpose_b);
    const Values a = random_values<A>(p.m * p.k, 1);
    const Values b = random_values<B>(p.k * p.n, 2);
    const Values c =
        p.beta == 0.0 ? Values(p.m * p.n, std::nan("")) : random_values<C>(p.m * p.n, 3);
    const Part<A> left(a, ta ? p.k : p.m, ta ? p.m : p.k);
    const Part<B> right(b, tb ? p.n : p.k, tb ? p.k : p.n);
    const Part<C> result(c, p.m, p.n);
    using Sum = Accumulator<C>;
    multiply(HostProduct<A, B, C>{.m = p.m,
                                  .n = p.n,
                                  .k = p.k,
                                  .transpose_a = p.transpose_a,
                                  .transpose_b = p.transpose_b,
                                  .alpha = static_cast<Sum>(p.alpha),
                                  .a = left.data(),
                                  .a_stride = left.stride(),
                                  .b = right.data(),
                                  .b_stride = right.stride(),
                                  .beta = static_cast<Sum>(p.beta),
                                  .c = result.data(),
                                  .c_stride = result.stride()});
    expect_close(result.values(), reference_gemm(p, a, b, c), tolerance<C>(),
                 describe(p));
    EXPECT_TRUE(result.gaps_are_untouched()) << describe(p);
  }
}

/// Left, right and result.
template <class A, class B, class C>
struct Types {
  using Left = A;
  using Right = B;
  using Result = C;
};
using AllTypes = testing::Types<Types<float, float, float>, Types<double, double, double>,
                                Types<Bf16, Bf16, Bf16>, Types<Bf16, Bf16, float>,
                                Types<float, Bf16, float>>;

#if defined(PLEAT_PACKED_GEMM)
template <class T>
class PackedGemm : public testing::Test {};
TYPED_TEST_SUITE(PackedGemm, AllTypes);

/// \param multiply  called with each product and a workspace
template <class Types, class Multiply>
void expect_packed_products(const Multiply& multiply) {
  using A = typename Types::Left;
  using B = typename Types::Right;
  using C = typename Types::Result;
  kernels::packed::Workspace<kernels::packed::MethodOf<A, B, C>> workspace;
  expect_products<A, B, C>([&](const auto& product) { multiply(product, workspace); });
}

TYPED_TEST(PackedGemm, EqualsPlainLoops) {
  expect_packed_products<TypeParam>([](const auto& product, auto& workspace) {
    kernels::packed::multiply(product, workspace);
  });
}

// What is fetched for it changes nothing; a group of experts may hold one without tokens.
TYPED_TEST(PackedGemm, EqualsPlainLoopsWhateverFollows) {
  bool over_nothing = false;
  expect_packed_products<TypeParam>([&](const auto& product, auto& workspace) {
    auto following = product;
    if (over_nothing) following.k = 0;
    over_nothing = !over_nothing;
    kernels::packed::multiply(product, workspace, &following);
  });
}

/// The lines of 64 bytes, counted from the first run, that a walk asks for.
std::set<Index> lines_of(const char* first, Index runs, Index bytes, Index stride,
                         Index looks) {
  kernels::packed::Ahead ahead(first, runs, bytes, stride, looks);
  std::set<Index> lines;
  for (Index look = 0; look < looks; ++look) {
    const auto [begin, step] = ahead.next();
    for (Index s = 0; s < kernels::packed::Ahead::kSteps; ++s) {
      lines.insert((begin - first + s * step) / 64);
    }
  }
  EXPECT_TRUE(ahead.done()) << looks << " looks";
  return lines;
}

TEST(PackedGemmAhead, FetchesEveryLineOfTheRunsAndAtMostOneMore) {
  constexpr Index kRuns = 8, kLines = 10, kStride = 32;  // in lines
  const std::vector<char> memory(kRuns * kStride * 64);
  for (const Index looks : {8, 9, 16, 24, 200}) {
    const auto lines = lines_of(memory.data(), kRuns, kLines * 64, kStride * 64, looks);
    for (Index line = 0; line < kRuns * kStride; ++line) {
      const bool wanted = line % kStride < kLines, beside = line % kStride == kLines;
      EXPECT_TRUE(beside || lines.contains(line) == wanted) << looks << " looks, line " << line;
    }
  }
}

TEST(PackedGemmAhead, IsDoneWhereNothingIsWanted) {
  EXPECT_TRUE(kernels::packed::Ahead().done());
}

#if defined(PLEAT_TEST_VECTOR_BYTES)
TEST(PackedGemmVariant, IsTheKernelThatTheTestIsNamedAfter) {
  EXPECT_EQ(kernels::packed::kVectorBytes, PLEAT_TEST_VECTOR_BYTES);
  EXPECT_EQ(kernels::packed::kHasPairs, PLEAT_TEST_PAIRS);
}
#endif
#endif

#if defined(PLEAT_HAVE_BLAS)
template <class T>
class BlasGemm : public testing::Test {};
TYPED_TEST_SUITE(BlasGemm, AllTypes);

TYPED_TEST(BlasGemm, EqualsPlainLoops) {
  expect_products<typename TypeParam::Left, typename TypeParam::Right,
                  typename TypeParam::Result>(
      [](const auto& product) { kernels::blas_gemm(product); });
}
#endif

}  // namespace
}  // namespace pleat::test
