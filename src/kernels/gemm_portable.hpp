// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A plain Kokkos matrix product for execution spaces without a vendor library.

#include "gemm_product.hpp"

namespace pleat::kernels {

/// \brief One work item forms one element of c; neighbouring items read neighbouring
/// columns.
template <class T, class C>
struct PortableGemm {
  using A = Accumulator<T>;
  MatrixProduct<T, T, C> x;

  KOKKOS_FUNCTION void operator()(const std::int64_t item) const {
    const std::int64_t row = item / x.n;
    const std::int64_t column = item % x.n;
    A sum = 0;
    for (std::int64_t k = 0; k < x.k; ++k) {
      const T left = x.transpose_a == Transpose::kYes ? x.a[k * x.a_stride + row]
                                                      : x.a[row * x.a_stride + k];
      const T right = x.transpose_b == Transpose::kYes ? x.b[column * x.b_stride + k]
                                                       : x.b[k * x.b_stride + column];
      sum += A(left) * A(right);
    }
    C& result = x.c[row * x.c_stride + column];
    // beta = 0 must not read c, which may hold NaN.
    result = x.beta == A(0) ? C(x.alpha * sum) : C(x.alpha * sum + x.beta * A(result));
  }
};

template <class T, class C>
void portable_product(const ExecSpace& exec, const MatrixProduct<T, T, C>& product) {
  using Range = Kokkos::RangePolicy<ExecSpace, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for("pleat::kernels::portable_gemm",
                       Range(exec, 0, product.m * product.n),
                       PortableGemm<T, C>{product});
}

/// \brief The same for views.
template <class T, class C>
void portable_gemm(const ExecSpace& exec, Transpose transpose_a, Transpose transpose_b,
                   Accumulator<T> alpha, const DeviceView<const T, 2>& a,
                   const DeviceView<const T, 2>& b, Accumulator<T> beta,
                   const DeviceView<C, 2>& c_MN) {
  portable_product<T, C>(
      exec, matrix_product<T, C>(transpose_a, transpose_b, alpha, a, b, beta, c_MN));
}

}  // namespace pleat::kernels
