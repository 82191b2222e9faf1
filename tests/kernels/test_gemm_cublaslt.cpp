// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief How products reach cuBLASLt, over a stand-in for it. That they are right is
/// what test_gemm.cpp shows over the same stand-in.

#include <cmath>
#include <numeric>
#include <string>
#include <string_view>

#include "counters.hpp"
#include "cublasLt.h"
#include "cublaslt_grouped.hpp"
#include "gemm_cublaslt.hpp"
#include "pleat/base/error.hpp"
#include "pleat/kernels/gemm.hpp"
#include "reference.hpp"

namespace pleat::test {
namespace {

using kernels::Transpose;

bool is_yes(Transpose transpose) { return transpose == Transpose::kYes; }

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

// Shapes that no algorithm suits but their own would fill the memory of a long run.
TEST_F(GemmByCublasLt, VeryManyShapesAreForgotten) {
  constexpr int kMostKnown = 4096;
  const DeviceView<float, 2> a("a", 1, 1), b("b", kMostKnown + 1, 1);
  const auto multiply_by = [&](int columns) {
    const DeviceView<float, 2> rows(b.data(), columns, 1), c_MN("c", 1, columns);
    kernels::gemm<float>(ExecSpace(), Transpose::kNo, Transpose::kYes, 1, a, rows, 0, c_MN);
  };
  for (int columns = 1; columns <= kMostKnown + 1; ++columns) multiply_by(columns);
  const int before = asked();
  multiply_by(kMostKnown + 1);
  EXPECT_EQ(asked(), before);
  multiply_by(1);
  EXPECT_EQ(asked(), before + 1);
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

/// Groups of rows, all of whose products are one call.
class GroupsByCublasLt : public GemmByCublasLt {
 protected:
  void SetUp() override {
    GemmByCublasLt::SetUp();
    kernels::set_groups_one_by_one(false);
  }
  void TearDown() override {
    EXPECT_EQ(calls().wrong_groups, before_.wrong_groups);
    stand_in::version = 130802;
    stand_in::has_grouped_algorithms = true;
    stand_in::status_of_grouped_products = CUBLAS_STATUS_SUCCESS;
    stand_in::grouped_algorithm = 1;
    stand_in::has_wrong_groups = false;
    stand_in::compute_capability = 9;
    kernels::set_groups_one_by_one(false);
    GemmByCublasLt::TearDown();
  }
  int grouped() const { return calls().grouped_products - before_.grouped_products; }
  int asked_for_groups() const {
    return calls().asked_for_groups - before_.asked_for_groups;
  }

  /// All 1 times all 2. \param n  such as no other test has: what was asked for stays
  /// known
  template <class T>
  static void multiply_rows(const std::vector<std::int64_t>& host, Index n,
                            Index k = 16) {
    const auto groups = static_cast<Index>(host.size()) - 1;
    const auto rows = static_cast<Index>(host.back());
    const kernels::GroupOffsets offsets{host, to_device<std::int64_t>(host, groups + 1)};
    const auto a_RK = to_device<T>(Values(rows * k, 1.0), rows, k);
    const auto b = to_device<T>(Values(groups * n * k, 2.0), groups, n, k);
    const DeviceView<T, 2> c_RN("c", rows, n);
    kernels::grouped_gemm_rows<T>(ExecSpace(), Transpose::kYes, 1, a_RK, b, 0, c_RN,
                                  offsets);
    expect_same(to_host(c_RN), Values(rows * n, 2.0 * static_cast<double>(k)), "sums");
  }
  static void multiply_rows(Index n) { multiply_rows<Bf16>({0, 8, 16, 16, 24, 32}, n); }

  static Values multiply_weights(const std::vector<std::int64_t>& host, float beta,
                                 double before) {
    constexpr Index kM = 8, kN = 16;
    const auto groups = static_cast<Index>(host.size()) - 1;
    const auto rows = static_cast<Index>(host.back());
    const kernels::GroupOffsets offsets{host, to_device<std::int64_t>(host, groups + 1)};
    const auto a_RM = to_device<Bf16>(Values(rows * kM, 1.0), rows, kM);
    const auto b_RN = to_device<Bf16>(Values(rows * kN, 3.0), rows, kN);
    const auto c = to_device<float>(Values(groups * kM * kN, before), groups, kM, kN);
    kernels::grouped_gemm_weights<Bf16>(ExecSpace(), 1, a_RM, b_RN, beta, c, offsets);
    const Values all = to_host(c);
    Values first;  // of each group, whose elements are all the same
    for (Index e = 0; e < groups; ++e) {
      first.push_back(all[e * kM * kN]);
      const Values group(all.begin() + e * kM * kN, all.begin() + (e + 1) * kM * kN);
      expect_same(group, Values(kM * kN, first.back()), "group");
    }
    return first;
  }
};

TEST_F(GroupsByCublasLt, OneCallForAllExperts) {
  multiply_rows(24);
  EXPECT_EQ(grouped(), 1);
  EXPECT_EQ(calls().groups, 4);  // the one without rows is left out
  EXPECT_EQ(products(), 0);
  EXPECT_EQ(beside(), 0);
}

TEST_F(GroupsByCublasLt, OneCallForAllGradients) {
  expect_same(multiply_weights({0, 4, 4, 6, 6}, 0.0F, std::nan("")), {12, 0, 6, 0},
              "sums");
  expect_same(multiply_weights({0, 4, 4, 6, 6}, 1.0F, 5.0), {17, 5, 11, 5}, "sums");
  expect_same(multiply_weights({0, 4, 4, 6, 6}, 2.0F, 5.0), {22, 10, 16, 10}, "sums");
  EXPECT_EQ(grouped(), 3);
  EXPECT_EQ(products(), 0);
}

TEST_F(GroupsByCublasLt, NothingIsMultipliedWhereNoGroupHasRows) {
  multiply_rows<Bf16>({0, 0, 0}, 16);
  expect_same(multiply_weights({0, 0, 0}, 0.0F, std::nan("")), {0, 0}, "sums");
  expect_same(multiply_weights({0, 0, 0}, 2.0F, 5.0), {10, 10}, "sums");
  EXPECT_EQ(grouped(), 0);
  EXPECT_EQ(products(), 0);
  EXPECT_EQ(asked_for_groups(), 0);
}

// Experts get other numbers of rows in every micro-batch: those of their average count.
TEST_F(GroupsByCublasLt, NearbyAveragesShareAnAlgorithm) {
  multiply_rows<Bf16>({0, 100, 227}, 40);
  multiply_rows<Bf16>({0, 1, 240}, 40);
  EXPECT_EQ(asked_for_groups(), 1);
  multiply_rows<Bf16>({0, 1, 242}, 40);
  EXPECT_EQ(asked_for_groups(), 2);
  multiply_rows<Bf16>({0, 0, 120, 240}, 40);  // two of three groups
  EXPECT_EQ(asked_for_groups(), 2);
  EXPECT_EQ(grouped(), 4);
}

TEST_F(GroupsByCublasLt, WithoutAnAlgorithmExpertsGoOneByOne) {
  stand_in::has_grouped_algorithms = false;
  for (int i = 0; i < 2; ++i) multiply_rows(48);
  EXPECT_EQ(asked_for_groups(), 1);
  EXPECT_EQ(grouped(), 0);
  EXPECT_EQ(products(), 8);
}

// Which way a product goes must not depend on those before it.
TEST_F(GroupsByCublasLt, WhatIsRefusedGoesOneByOneThatTime) {
  testing::internal::CaptureStderr();
  for (const auto status : {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE,
                            CUBLAS_STATUS_ARCH_MISMATCH}) {
    stand_in::status_of_grouped_products = status;
    multiply_rows(56);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "WARNING: cuBLASLt 13.8.2 refuses grouped products that it has an algorithm for "
            "(another status): those experts are multiplied one by one\n");
  EXPECT_EQ(products(), 12);
  stand_in::status_of_grouped_products = CUBLAS_STATUS_SUCCESS;
  multiply_rows(56);
  EXPECT_EQ(asked_for_groups(), 1);
  EXPECT_EQ(grouped(), 1);
  EXPECT_EQ(products(), 12);
}

/// The text of PL0813, which the products end with.
template <class Multiply>
std::string error_of(const Multiply& multiply) {
  try {
    multiply();
  } catch (const InternalError& error) {
    EXPECT_EQ(error.id(), "PL0813");
    return error.what();
  }
  return "";
}

TEST_F(GroupsByCublasLt, OtherFailuresAreErrors) {
  stand_in::status_of_grouped_products = CUBLAS_STATUS_EXECUTION_FAILED;
  const std::string text = error_of([] { multiply_rows(72); });
  EXPECT_NE(text.find("cublasLtMatmul failed for groups: execution failed"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("HINT: with PLEAT_GROUPED_PRODUCTS=one-by-one"), std::string::npos);
  EXPECT_EQ(products(), 0);
}

// A run that is begun anew would not know of them, and go on with other bits.
TEST_F(GroupsByCublasLt, WrongSumsAreErrors) {
  stand_in::grouped_algorithm = 2;
  stand_in::has_wrong_groups = true;
  for (const float beta : {0.0F, 1.0F}) {
    const std::string text =
        error_of([&] { multiply_weights({0, 16, 16, 40}, beta, 5.0); });
    EXPECT_NE(text.find("the grouped product of cuBLASLt 13.8.2 has wrong sums\nHINT: with "
                        "PLEAT_GROUPED_PRODUCTS=one-by-one"),
              std::string::npos)
        << text;
  }
  EXPECT_EQ(grouped(), 2);
  EXPECT_EQ(products(), 0);
}

int comparisons = 0;

// Averages change with every step: the host must not wait for each of them.
TEST_F(GroupsByCublasLt, AnAlgorithmIsComparedOnceWhateverTheAverages) {
  stand_in::grouped_algorithm = 3;
  comparisons = 0;
  Kokkos::Tools::Experimental::set_begin_parallel_reduce_callback(
      [](const char* name, const std::uint32_t, std::uint64_t*) {
        comparisons += std::string_view(name) == "pleat::kernels::samples_agree";
      });
  for (const std::int64_t rows : {20, 40, 80}) multiply_rows<Bf16>({0, 1, rows}, 112);
  EXPECT_EQ(asked_for_groups(), 3);
  EXPECT_EQ(comparisons, 1);
  multiply_weights({0, 50, 200}, 0.0F, 0.0);
  EXPECT_EQ(comparisons, 2) << "another kind of product";
  multiply_weights({0, 50, 200}, 1.0F, 0.0);
  EXPECT_EQ(comparisons, 3) << "c is added to";
  multiply_weights({0, 50, 400}, 1.0F, 0.0);
  EXPECT_EQ(comparisons, 3);
  Kokkos::Tools::Experimental::set_begin_parallel_reduce_callback(nullptr);
}

// The sums of a loss that diverges tell nothing about the library.
TEST_F(GroupsByCublasLt, SumsThatAreNoNumbersAreNotCompared) {
  const std::vector<std::int64_t> host{0, 8, 24};
  const kernels::GroupOffsets offsets{host, to_device<std::int64_t>(host, 3)};
  const auto a_RK = to_device<Bf16>(Values(24 * 16, std::nan("")), 24, 16);
  const DeviceView<Bf16, 3> b("b", 2, 104, 16);
  const DeviceView<Bf16, 2> c_RN("c", 24, 104);
  stand_in::grouped_algorithm = 4;
  stand_in::has_wrong_groups = true;
  kernels::grouped_gemm_rows<Bf16>(ExecSpace(), Transpose::kYes, 1, a_RK, b, 0, c_RN,
                                   offsets);
  EXPECT_EQ(grouped(), 1);
  EXPECT_EQ(products(), 0);
}

TEST_F(GroupsByCublasLt, OtherLibrariesGpusTypesAndWidthsGoOneByOne) {
  stand_in::version = 130100;
  multiply_rows(64);
  EXPECT_EQ(kernels::cublaslt_grouped_way(),
            "one by one (13.6.2, 13.8 or newer has a sound grouped product)");
  stand_in::version = 130802;
  stand_in::compute_capability = 10;
  multiply_rows(64);
  EXPECT_EQ(kernels::cublaslt_grouped_way(),
            "one by one (grouped products are for Hopper)");
  stand_in::compute_capability = 9;
  kernels::set_groups_one_by_one(true);
  multiply_rows(64);
  kernels::set_groups_one_by_one(false);
  multiply_rows<float>({0, 8, 16, 16, 24, 32}, 64);
  multiply_rows<Bf16>({0, 8, 16, 16, 24, 32}, 60);      // 120 bytes
  multiply_rows<Bf16>({0, 8, 16, 16, 24, 32}, 64, 12);  // 24 bytes
  EXPECT_EQ(asked_for_groups(), 0);
  EXPECT_EQ(grouped(), 0);
  EXPECT_EQ(products(), 24);
  EXPECT_EQ(kernels::cublaslt_grouped_way(), "in one call");
  EXPECT_EQ(kernels::cublaslt_name(), "cuBLASLt 13.8.2");
}

TEST_F(GroupsByCublasLt, VersionsWithKnownErrorsAreNotUsed) {
  using kernels::cublaslt::has_sound_groups;
  for (const std::size_t version : {130602, 130699, 130800, 130802, 131000}) {
    EXPECT_TRUE(has_sound_groups(version)) << version;
  }
  for (const std::size_t version :
       {120402, 130100, 130200, 130400, 130500, 130601, 130700, 130799, 140000}) {
    EXPECT_FALSE(has_sound_groups(version)) << version;
  }
}

TEST_F(GroupsByCublasLt, FailureNamesTheCall) {
  stand_in::fail_next_product = true;
  try {
    multiply_rows(72);
    FAIL() << "no exception";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.id(), "PL0813");
  }
}

/// The arrays for one product of groups with so many rows, against a serial loop.
template <class T, class C>
void expect_arrays(const kernels::GroupedProduct<T, C>& product,
                   const kernels::GroupArrays& arrays) {
  using Arrays = kernels::GroupArrays;
  const auto& x = product.whole;
  const bool tb = is_yes(x.transpose_b);
  int place = 0, empty = 0;
  const auto expect = [&](int matrix, const void* first, Index rows, Index columns,
                          Index stride) {
    EXPECT_EQ(arrays.matrix(matrix)[place], reinterpret_cast<std::uintptr_t>(first));
    EXPECT_EQ(arrays.extent(matrix, Arrays::kRows)[place], rows);
    EXPECT_EQ(arrays.extent(matrix, Arrays::kColumns)[place], columns);
    EXPECT_EQ(arrays.extent(matrix, Arrays::kStride)[place], stride);
  };
  for (std::int64_t e = 0; e < product.offsets.groups(); ++e) {
    const std::int64_t begin = product.offsets.host[e];
    const std::int64_t rows = product.offsets.host[e + 1] - begin;
    if (rows == 0) {
      EXPECT_EQ(arrays.empty(empty++), e);
      continue;
    }
    if (product.sums_rows()) {
      expect(0, x.b + begin * x.b_stride, x.n, rows, x.b_stride);
      expect(2, x.c + e * product.own_step, x.n, x.m, x.c_stride);
      expect(1, x.a + begin * x.a_stride, x.m, rows, x.a_stride);
    } else {
      expect(0, x.b + e * product.own_step, tb ? x.k : x.n, tb ? x.n : x.k, x.b_stride);
      expect(2, x.c + begin * x.c_stride, x.n, rows, x.c_stride);
      expect(1, x.a + begin * x.a_stride, x.k, rows, x.a_stride);
    }
    ++place;
  }
  EXPECT_EQ(*arrays.scalar(Arrays::kAlpha), static_cast<float>(x.alpha));
  EXPECT_EQ(*arrays.scalar(Arrays::kBeta), static_cast<float>(x.beta));
}

template <class T, class C>
void expect_arrays(const std::vector<std::int64_t>& host, Transpose transpose_a,
                   Transpose transpose_b) {
  const kernels::GroupOffsets offsets{host, to_device<std::int64_t>(host, host.size())};
  // Only addresses are formed of them.
  const auto* const none = reinterpret_cast<const T*>(std::uintptr_t{4096});
  auto* const nothing = reinterpret_cast<C*>(std::uintptr_t{8192});
  const bool sums = is_yes(transpose_a);
  const kernels::GroupedProduct<T, C> product{.whole = {.m = sums ? 5 : host.back(),
                                                        .n = 7,
                                                        .k = sums ? host.back() : 3,
                                                        .transpose_a = transpose_a,
                                                        .transpose_b = transpose_b,
                                                        .alpha = 1.5F,
                                                        .a = none + 100,
                                                        .a_stride = 11,
                                                        .b = none + 200,
                                                        .b_stride = 12,
                                                        .beta = -2.0F,
                                                        .c = nothing + 300,
                                                        .c_stride = 13},
                                              .own_step = 1000,
                                              .offsets = offsets};
  kernels::GroupArrays arrays;
  arrays.reserve(offsets.groups());
  kernels::form_groups(ExecSpace(), product, arrays);
  ExecSpace().fence();
  expect_arrays(product, arrays);
}

template <class T>
class GroupArraysOf : public testing::Test {};
TYPED_TEST_SUITE(GroupArraysOf, Storages);

TYPED_TEST(GroupArraysOf, EveryTransposeAndEmptyGroupsAnywhere) {
  using T = TypeParam;
  const std::vector<std::vector<std::int64_t>> offsets = {
      {0, 4},          {0, 0, 0, 5, 9},    {0, 5, 5, 9}, {0, 5, 9, 9, 9},
      {0, 0, 0, 0, 0}, {0, 0, 2, 2, 3, 3}, {0, 1, 2, 3}};
  for (const auto& host : offsets) {
    expect_arrays<T, T>(host, Transpose::kNo, Transpose::kNo);
    expect_arrays<T, T>(host, Transpose::kNo, Transpose::kYes);
    expect_arrays<T, Gradient<T>>(host, Transpose::kYes, Transpose::kNo);
  }
}

// What cuBLASLt demands of arrays of addresses, whatever the number of groups.
TEST_F(GroupsByCublasLt, ArraysAreAligned) {
  for (std::int64_t groups = 1; groups < 20; ++groups) {
    kernels::GroupArrays arrays;
    arrays.reserve(groups);
    for (int i = 0; i < kernels::GroupArrays::kMatrices; ++i) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arrays.matrix(i)) % 16, 0U) << groups;
    }
  }
}

int allocations = 0;

TEST_F(GroupsByCublasLt, LaterCallsTakeNoMemory) {
  const std::vector<std::int64_t> host{0, 8, 8, 24};
  const kernels::GroupOffsets offsets{host, to_device<std::int64_t>(host, 4)};
  const DeviceView<Bf16, 2> a_RK("a", 24, 16), c_RN("c", 24, 80);
  const DeviceView<Bf16, 3> b("b", 3, 80, 16);
  const auto call = [&] {
    kernels::grouped_gemm_rows<Bf16>(ExecSpace(), Transpose::kYes, 1, a_RK, b, 0, c_RN,
                                     offsets);
  };
  call();
  namespace tools = Kokkos::Tools::Experimental;
  tools::set_allocate_data_callback([](const Kokkos_Profiling_SpaceHandle, const char*,
                                       const void*,
                                       const std::uint64_t) { ++allocations; });
  call();
  tools::set_allocate_data_callback(nullptr);
  EXPECT_EQ(grouped(), 2);
  EXPECT_EQ(allocations, 0);
}

}  // namespace
}  // namespace pleat::test
