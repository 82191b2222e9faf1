// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A plain Kokkos matrix product for execution spaces without a vendor library.

#include "pleat/kernels/gemm.hpp"

namespace pleat::kernels {

/// \brief One work item forms one element of c; neighbouring items read neighbouring columns.
template <class T, class C>
struct PortableGemm {
  using A = Accumulator<T>;
  Transpose transpose_a;
  Transpose transpose_b;
  A alpha;
  DeviceView<const T, 2> a;
  DeviceView<const T, 2> b;
  A beta;
  DeviceView<C, 2> c_MN;
  std::int64_t inner;

  KOKKOS_FUNCTION void operator()(const std::int64_t item) const {
    const std::int64_t columns = c_MN.extent_int(1);
    const std::int64_t row = item / columns;
    const std::int64_t column = item % columns;
    A sum = 0;
    for (std::int64_t k = 0; k < inner; ++k) {
      const T left = transpose_a == Transpose::kYes ? a(k, row) : a(row, k);
      const T right = transpose_b == Transpose::kYes ? b(column, k) : b(k, column);
      sum += A(left) * A(right);
    }
    C& result = c_MN(row, column);
    // beta = 0 must not read c, which may hold NaN.
    result = beta == A(0) ? C(alpha * sum) : C(alpha * sum + beta * A(result));
  }
};

template <class T, class C>
void portable_gemm(const ExecSpace& exec, Transpose transpose_a, Transpose transpose_b,
                   Accumulator<T> alpha, const DeviceView<const T, 2>& a,
                   const DeviceView<const T, 2>& b, Accumulator<T> beta,
                   const DeviceView<C, 2>& c_MN) {
  const std::int64_t inner = transpose_a == Transpose::kYes ? a.extent_int(0) : a.extent_int(1);
  const auto items = static_cast<std::int64_t>(c_MN.size());
  Kokkos::parallel_for(
      "pleat::kernels::portable_gemm", Kokkos::RangePolicy<ExecSpace>(exec, 0, items),
      PortableGemm<T, C>{transpose_a, transpose_b, alpha, a, b, beta, c_MN, inner});
}

}  // namespace pleat::kernels
