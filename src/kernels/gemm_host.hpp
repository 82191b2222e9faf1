// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Matrix products in host memory.
///
/// PLEAT_HOST_GEMM is defined where views lie in host memory and products have a quick path:
/// the packed kernel of gemm_packed.hpp where the compiler may use vectors with fused
/// multiply-add (PLEAT_PACKED_GEMM), else the BLAS.

#include <cstdint>
#include <span>

#include "pleat/kernels/gemm.hpp"

#if !defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_HIP) && !defined(KOKKOS_ENABLE_SYCL)
#if (defined(__AVX2__) && defined(__FMA__)) || defined(__AVX512F__)
#define PLEAT_PACKED_GEMM
#endif
#if defined(PLEAT_PACKED_GEMM) || defined(PLEAT_HAVE_BLAS)
#define PLEAT_HOST_GEMM
#endif
#endif

namespace pleat::kernels {

/// \brief c[m, n] = alpha op(a)[m, k] op(b)[k, n] + beta c, row-major. The sums are formed in
/// the accumulator of C.
template <class A, class B = A, class C = A>
struct HostProduct {
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

/// \brief One product on the calling thread, which is inside a parallel region or alone.
template <class A, class B = A, class C = A>
void host_gemm(const HostProduct<A, B, C>& product);

/// \brief Independent products on all threads of the execution space. The split depends on
/// the shapes and the number of threads alone, so results have the same bits every time.
template <class T, class C = T>
void host_gemms(const ExecSpace& exec, std::span<const HostProduct<T, T, C>> products);

}  // namespace pleat::kernels
