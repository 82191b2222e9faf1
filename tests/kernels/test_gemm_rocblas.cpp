// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief How products reach rocBLAS, over a stand-in for it. That they are right is what
/// test_gemm.cpp shows over the same stand-in.

#include <span>

#include <gmock/gmock.h>
#include <rocblas/rocblas.h>

#include "gemm_rocblas.hpp"
#include "pleat/base/error.hpp"
#include "pleat/kernels/gemm.hpp"
#include "reference.hpp"

namespace pleat::test {
namespace {

using kernels::Transpose;
using testing::HasSubstr;

class GemmByRocblas : public testing::Test {
 protected:
  static stand_in::RocblasCalls calls() { return stand_in::rocblas_calls(); }
  int products() const { return calls().products - before_.products; }

  stand_in::RocblasCalls before_ = calls();
};

/// [1 2] [5] + 2 [1], whose sum is 19.
Values small_product() {
  const auto c_MN = to_device<float>(Values{1.0}, 1, 1);
  kernels::gemm<float>(ExecSpace(), Transpose::kNo, Transpose::kNo, 1.0F,
                       to_device<float>(Values{1.0, 2.0}, 1, 2),
                       to_device<float>(Values{5.0, 6.0}, 2, 1), 2.0F, c_MN);
  return to_host(c_MN);
}

TEST_F(GemmByRocblas, HasOneHandleForAStreamAndNoAtomics) {
  for (int i = 0; i < 3; ++i) expect_same(small_product(), {19.0}, "product");
  EXPECT_EQ(products(), 3);
  EXPECT_EQ(calls().with_atomics, 0);
  EXPECT_EQ(calls().live_handles, 1);
}

TEST_F(GemmByRocblas, LeavesToThePortableKernelWhatTheLibraryLacks) {
  stand_in::answer_next_product(rocblas_status_not_implemented);
  expect_same(small_product(), {19.0}, "product");
  EXPECT_EQ(products(), 0);
}

TEST_F(GemmByRocblas, LeavesProductsOverNothingToThePortableKernel) {
  const DeviceView<float, 2> a("a", 2, 0), b("b", 0, 2);
  const auto c_MN = to_device<float>(Values{1.0, 2.0, 3.0, 4.0}, 2, 2);
  kernels::gemm<float>(ExecSpace(), Transpose::kNo, Transpose::kNo, 1.0F, a, b, 0.5F,
                       c_MN);
  expect_same(to_host(c_MN), {0.5, 1.0, 1.5, 2.0}, "c");
  EXPECT_EQ(products(), 0);
}

// A stride that 32 bits cut to 1 would read the wrong element of a.
TEST_F(GemmByRocblas, DoesNotCutStridesTo32Bits) {
  const auto a = to_device<float>(Values{3.0}, 1, 1);
  const auto b = to_device<float>(Values{4.0}, 1, 1);
  const DeviceView<float, 2> c("c", 1, 1);
  kernels::MatrixProduct<float> product{.m = 1, .n = 1, .k = 1};
  product.a = a.data();
  product.a_stride = (std::int64_t{1} << 32) + 1;
  product.b = b.data();
  product.b_stride = 1;
  product.beta = 0;
  product.c = c.data();
  product.c_stride = 1;
  kernels::rocblas_gemms<float, float>(ExecSpace(), {&product, 1});
  expect_same(to_host(c), {12.0}, "product");
  EXPECT_EQ(products(), 0);
}

TEST_F(GemmByRocblas, SaysWhatTheLibrarySays) {
  stand_in::answer_next_product(rocblas_status_internal_error);
  try {
    small_product();
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("PL0814"));
    EXPECT_THAT(error.what(), HasSubstr("rocblas_gemm_ex failed"));
    EXPECT_THAT(error.what(), HasSubstr("rocblas_status_internal_error"));
  }
}

}  // namespace
}  // namespace pleat::test
