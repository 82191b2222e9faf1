// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The host's BLAS, where gemm_packed.hpp has no vectors to work with.

#include "gemm_host.hpp"

#if defined(PLEAT_HAVE_BLAS)

#include <limits>
#include <type_traits>
#include <vector>

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
  requires std::is_floating_point_v<T>
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

/// \brief Copies into `wide`, in the type of the sums and without gaps between the rows.
template <class Sum, class T>
void widen(const T* matrix, std::int64_t rows, std::int64_t columns, std::int64_t stride,
           std::vector<Sum>& wide) {
  wide.resize(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      wide[static_cast<std::size_t>(i * columns + j)] = static_cast<Sum>(matrix[i * stride + j]);
    }
  }
}

/// \brief A product of numbers that the BLAS does not know, on wider copies.
template <class A, class B, class C>
void blas_gemm(const HostProduct<A, B, C>& x) {
  using Sum = Accumulator<C>;
  const bool ta = x.transpose_a == Transpose::kYes;
  const bool tb = x.transpose_b == Transpose::kYes;
  const std::int64_t a_columns = ta ? x.m : x.k;
  const std::int64_t b_columns = tb ? x.k : x.n;
  static thread_local std::vector<Sum> a, b, c;  // their memory, for the next product
  widen(x.a, ta ? x.k : x.m, a_columns, x.a_stride, a);
  widen(x.b, tb ? x.n : x.k, b_columns, x.b_stride, b);
  widen(x.c, x.m, x.n, x.c_stride, c);
  blas_gemm<Sum>({.m = x.m,
                  .n = x.n,
                  .k = x.k,
                  .transpose_a = x.transpose_a,
                  .transpose_b = x.transpose_b,
                  .alpha = x.alpha,
                  .a = a.data(),
                  .a_stride = a_columns,
                  .b = b.data(),
                  .b_stride = b_columns,
                  .beta = x.beta,
                  .c = c.data(),
                  .c_stride = x.n});
  for (std::int64_t i = 0; i < x.m; ++i) {
    for (std::int64_t j = 0; j < x.n; ++j) {
      x.c[i * x.c_stride + j] = C(c[static_cast<std::size_t>(i * x.n + j)]);
    }
  }
}

}  // namespace pleat::kernels

#endif
