// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The OpenBLAS that the program loads shares its threads with Kokkos. Which one that
/// is, the loader decides at run time, not the link line.

#include <dlfcn.h>

#include <gtest/gtest.h>

#include "pleat/kernels/gemm.hpp"

namespace pleat {
namespace {

constexpr int kOpenMpBuild = 2;  // what openblas_get_parallel() returns for it

TEST(BlasThreads, OpenBlasIsTheOpenMpBuild) {
#if defined(KOKKOS_ENABLE_OPENMP)
  // A call, without which the linker would leave the BLAS out of this test.
  const DeviceView<float, 2> a("a", 2, 2), c("c", 2, 2);
  kernels::gemm<float>(ExecSpace(), kernels::Transpose::kNo, kernels::Transpose::kNo, 1, a, a,
                       0, c);
  using Query = int (*)();
  const auto query = reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "openblas_get_parallel"));
  if (query == nullptr) GTEST_SKIP() << "the BLAS is not OpenBLAS";
  EXPECT_EQ(query(), kOpenMpBuild);
#else
  GTEST_SKIP() << "Kokkos has no OpenMP here";
#endif
}

}  // namespace
}  // namespace pleat
