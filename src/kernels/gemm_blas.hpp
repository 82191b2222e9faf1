// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The host's BLAS, where gemm_packed.hpp has no vectors to work with.

#include "gemm_host.hpp"

#if defined(PLEAT_HOST_GEMM) && !defined(PLEAT_PACKED_GEMM)

#include <limits>
#include <type_traits>

#include "pleat/base/error.hpp"

// Every BLAS (OpenBLAS, MKL, BLIS, LibSci, ESSL) offers the Fortran names.
extern "C" {
void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
            const int* k, const float* alpha, const float* a, const int* lda, const float* b,
            const int* ldb, const float* beta, float* c, const int* ldc);
void dgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
            const int* k, const double* alpha, const double* a, const int* lda, const double* b,
            const int* ldb, const double* beta, double* c, const int* ldc);
}

namespace pleat::kernels {

inline int blas_int(std::int64_t value) {
  PLEAT_ASSERT(value <= std::numeric_limits<int>::max(), "extent {} exceeds BLAS's int", value);
  return static_cast<int>(value);
}

/// \brief The product on one thread inside a parallel region, on the BLAS's own number of
/// threads outside.
template <class T>
void blas_gemm(const HostProduct<T>& x) {
  // A row-major matrix is its transpose in BLAS's column-major eyes: c^T = op(b)^T op(a)^T.
  const char left = x.transpose_b == Transpose::kYes ? 'T' : 'N';
  const char right = x.transpose_a == Transpose::kYes ? 'T' : 'N';
  const int m = blas_int(x.n), n = blas_int(x.m), k = blas_int(x.k);
  const int lda = blas_int(x.b_stride), ldb = blas_int(x.a_stride), ldc = blas_int(x.c_stride);
  if constexpr (std::is_same_v<T, float>) {
    sgemm_(&left, &right, &m, &n, &k, &x.alpha, x.b, &lda, x.a, &ldb, &x.beta, x.c, &ldc);
  } else {
    dgemm_(&left, &right, &m, &n, &k, &x.alpha, x.b, &lda, x.a, &ldb, &x.beta, x.c, &ldc);
  }
}

}  // namespace pleat::kernels

#endif
