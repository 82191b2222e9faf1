// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief How products reach cuBLASLt, over a stand-in for it. That they are right is
/// what test_gemm.cpp shows over the same stand-in.

#include <numeric>

#include "cublasLt.h"
#include "gemm_cublaslt.hpp"
#include "pleat/base/error.hpp"
#include "pleat/kernels/gemm.hpp"
#include "reference.hpp"

namespace pleat::test {
namespace {

using kernels::Transpose;

class GemmByCublasLt : public testing::Test {
 protected:
  void SetUp() override { before_ = calls(); }
  void TearDown() override {
    stand_in::narrow_algorithms = false;
    stand_in::fail_next_product = false;
  }
  static stand_in::BlasCalls calls() { return stand_in::blas_calls(); }
  int asked() const { return calls().asked - before_.asked; }
  int products() const { return calls().products - before_.products; }
  int beside() const { return calls().beside - before_.beside; }

  stand_in::BlasCalls before_;
};

/// c = a b^T with so many rows and columns that no other test has.
template <class T>
Values multiply(Index m, Index n, Index k) {
  const auto a = to_device<T>(random_values<T>(m * k, 1), m, k);
  const auto b = to_device<T>(random_values<T>(n * k, 2), n, k);
  const DeviceView<T, 2> c_MN("c", m, n);
  kernels::gemm<T>(ExecSpace(), Transpose::kNo, Transpose::kYes, 1, a, b, 0, c_MN);
  return to_host(c_MN);
}

Values plain(Index m, Index n, Index k) {
  const Values a = random_values<float>(m * k, 1);
  const Values b = random_values<float>(n * k, 2);
  Values c;
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      c.push_back(std::inner_product(a.begin() + i * k, a.begin() + (i + 1) * k,
                                     b.begin() + j * k, 0.0));
    }
  }
  return c;
}

TEST_F(GemmByCublasLt, AsksOnceForAShape) {
  for (int i = 0; i < 3; ++i) multiply<float>(16, 24, 40);
  EXPECT_EQ(asked(), 1);
  EXPECT_EQ(products(), 3);
  EXPECT_EQ(beside(), 0);  // one product alone needs no other stream
}

// Experts get other numbers of rows in every micro-batch.
TEST_F(GemmByCublasLt, NearbyNumbersOfRowsShareAnAlgorithm) {
  for (const Index rows : {113, 114, 117, 119, 120}) {
    expect_close(multiply<float>(rows, 32, 48), plain(rows, 32, 48), tolerance<float>(),
                 "product");
  }
  EXPECT_EQ(asked(), 1);
  multiply<float>(121, 32, 48);
  EXPECT_EQ(asked(), 2);
}

TEST_F(GemmByCublasLt, AnAlgorithmThatDoesNotFitIsAskedForAgain) {
  stand_in::narrow_algorithms = true;
  for (int i = 0; i < 2; ++i) {
    expect_close(multiply<float>(115, 36, 52), plain(115, 36, 52), tolerance<float>(),
                 "product");
  }
  EXPECT_EQ(asked(), 2);  // for 120 rows and for 115
  EXPECT_EQ(products(), 2);
}

// Rows of three numbers in bf16 begin at odd multiples of two bytes.
TEST_F(GemmByCublasLt, BadAlignmentIsLeftToThePortableKernel) {
  const std::vector<std::int64_t> host{0, 1, 2};
  const kernels::GroupOffsets offsets{host, to_device<std::int64_t>(host, 3)};
  const auto a_RK = to_device<Bf16>(Values{1, 2, 3, 4, 5, 6}, 2, 3);
  const auto b = to_device<Bf16>(Values(6, 1.0), 2, 1, 3);
  const DeviceView<Bf16, 2> c_RN("c", 2, 1);
  kernels::grouped_gemm_rows<Bf16>(ExecSpace(), Transpose::kYes, 1, a_RK, b, 0, c_RN,
                                   offsets);
  expect_same(to_host(c_RN), {6, 15}, "sums");
  EXPECT_EQ(products(), 1);
}

TEST_F(GemmByCublasLt, ExpertsAreMultipliedSideBySide) {
  const std::vector<std::int64_t> host{0, 8, 16, 16, 24, 32};
  const kernels::GroupOffsets offsets{host, to_device<std::int64_t>(host, 6)};
  const auto a_RK = to_device<float>(Values(32 * 4, 1.0), 32, 4);
  const auto b = to_device<float>(Values(5 * 8 * 4, 2.0), 5, 8, 4);
  const DeviceView<float, 2> c_RN("c", 32, 8);
  kernels::grouped_gemm_rows<float>(ExecSpace(), Transpose::kYes, 1, a_RK, b, 0, c_RN,
                                    offsets);
  expect_same(to_host(c_RN), Values(32 * 8, 8.0), "sums");
  EXPECT_EQ(products(), 4);  // the group without rows is none
  EXPECT_EQ(beside(), 3);    // and one on the stream of the execution space
}

TEST_F(GemmByCublasLt, FailureNamesTheCall) {
  stand_in::fail_next_product = true;
  try {
    multiply<float>(8, 8, 8);
    FAIL() << "no exception";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.id(), "PL0813");
    EXPECT_NE(std::string(error.what()).find("cublasLtMatmul failed: execution failed"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(GemmByCublasLt, OneHandleForAnExecutionSpace) {
  multiply<float>(8, 8, 8);
  multiply<double>(8, 8, 8);
  EXPECT_EQ(calls().live_handles, 1);
}

}  // namespace
}  // namespace pleat::test
