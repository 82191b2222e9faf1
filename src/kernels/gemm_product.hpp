// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A matrix product as libraries see it: pointers, extents and strides.

#include <algorithm>
#include <cstdint>

#include "pleat/kernels/gemm.hpp"

namespace pleat::kernels {

/// \brief c[m, n] = alpha op(a)[m, k] op(b)[k, n] + beta c, row-major. The sums are
/// formed in the accumulator of C.
template <class A, class B = A, class C = A>
struct MatrixProduct {
  using Left = A;
  using Right = B;
  using Result = C;
  using Sum = Accumulator<C>;
  std::int64_t m = 0, n = 0, k = 0;
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  Sum alpha = 1;
  const A* a = nullptr;
  std::int64_t a_stride = 0;  ///< elements from one row as stored to the next
  const B* b = nullptr;
  std::int64_t b_stride = 0;
  Sum beta = 0;
  C* c = nullptr;
  std::int64_t c_stride = 0;
};

namespace detail {

/// \brief Libraries want a leading dimension of at least the row's length, even for a
/// single row.
template <class T>
std::int64_t row_stride(const DeviceView<T, 2>& view) {
  const auto columns = static_cast<std::int64_t>(view.extent(1));
  const auto stride = static_cast<std::int64_t>(view.stride(0));
  return std::max({stride, columns, std::int64_t{1}});
}

}  // namespace detail

/// \brief The product of views whose shapes fit.
template <class T, class C>
MatrixProduct<T, T, C> matrix_product(Transpose transpose_a, Transpose transpose_b,
                                      Accumulator<T> alpha,
                                      const DeviceView<const T, 2>& a,
                                      const DeviceView<const T, 2>& b,
                                      Accumulator<T> beta, const DeviceView<C, 2>& c_MN) {
  MatrixProduct<T, T, C> result;
  result.m = static_cast<std::int64_t>(c_MN.extent(0));
  result.n = static_cast<std::int64_t>(c_MN.extent(1));
  result.k = static_cast<std::int64_t>(a.extent(transpose_a == Transpose::kYes ? 0 : 1));
  result.transpose_a = transpose_a;
  result.transpose_b = transpose_b;
  result.alpha = alpha;
  result.a = a.data();
  result.a_stride = detail::row_stride<const T>(a);
  result.b = b.data();
  result.b_stride = detail::row_stride<const T>(b);
  result.beta = beta;
  result.c = c_MN.data();
  result.c_stride = detail::row_stride<C>(c_MN);
  return result;
}

}  // namespace pleat::kernels
