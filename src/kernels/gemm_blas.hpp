// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The host's BLAS in row-major terms.

#include <cstdint>
#include <limits>
#include <type_traits>

#include <cblas.h>

#include "pleat/base/error.hpp"
#include "pleat/kernels/gemm.hpp"

namespace pleat::kernels {

/// Extents and leading dimensions of c[m, n] = alpha op(a)[m, k] op(b)[k, n] + beta c.
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
};

inline int blas_int(std::int64_t value) {
  PLEAT_ASSERT(value <= std::numeric_limits<int>::max(), "extent {} exceeds BLAS's int", value);
  return static_cast<int>(value);
}

/// \brief c = alpha op(a) op(b) + beta c, on as many threads as the BLAS takes: all of them
/// outside a parallel region, one inside.
template <class T>
void blas_gemm(const GemmShape& shape, T alpha, const T* a, const T* b, T beta, T* c) {
  const auto transpose_a = shape.transpose_a == Transpose::kYes ? CblasTrans : CblasNoTrans;
  const auto transpose_b = shape.transpose_b == Transpose::kYes ? CblasTrans : CblasNoTrans;
  const int m = blas_int(shape.m), n = blas_int(shape.n), k = blas_int(shape.k);
  const int lda = blas_int(shape.lda), ldb = blas_int(shape.ldb), ldc = blas_int(shape.ldc);
  if constexpr (std::is_same_v<T, float>) {
    cblas_sgemm(CblasRowMajor, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c,
                ldc);
  } else {
    cblas_dgemm(CblasRowMajor, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c,
                ldc);
  }
}

}  // namespace pleat::kernels
