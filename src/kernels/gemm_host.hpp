// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Matrix products in host memory.
///
/// PLEAT_HOST_GEMM is defined where views lie in host memory and products have a quick path:
/// the packed kernel of gemm_packed.hpp where the compiler may use vectors with fused
/// multiply-add (PLEAT_PACKED_GEMM), else the BLAS.

#include <span>

#include "gemm_product.hpp"

#if !defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_HIP) && \
    !defined(KOKKOS_ENABLE_SYCL) && !defined(PLEAT_CUBLASLT_STAND_IN) && \
    !defined(PLEAT_ROCBLAS_STAND_IN)
#if (defined(__AVX2__) && defined(__FMA__)) || defined(__AVX512F__)
#define PLEAT_PACKED_GEMM
#endif
#if defined(PLEAT_PACKED_GEMM) || defined(PLEAT_HAVE_BLAS)
#define PLEAT_HOST_GEMM
#endif
#endif

namespace pleat::kernels {

/// \brief In host memory.
template <class A, class B = A, class C = A>
using HostProduct = MatrixProduct<A, B, C>;

/// \brief One product on the calling thread, which is inside a parallel region or alone.
template <class A, class B = A, class C = A>
void host_gemm(const HostProduct<A, B, C>& product);

/// \brief Independent products on all threads of the execution space. The split depends on
/// the shapes and the number of threads alone, so results have the same bits every time.
template <class T, class C = T>
void host_gemms(const ExecSpace& exec, std::span<const HostProduct<T, T, C>> products);

}  // namespace pleat::kernels
