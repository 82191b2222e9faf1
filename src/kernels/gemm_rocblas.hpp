// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Matrix products by rocBLAS on AMD GPUs.
///
/// PLEAT_ROCBLAS_GEMM is defined where CMake found it. PLEAT_ROCBLAS_STAND_IN compiles
/// the same code over a stand-in on host memory (tests/kernels/stand_in).

#include <span>

#include "gemm_product.hpp"

#if defined(PLEAT_HAVE_ROCBLAS) || defined(PLEAT_ROCBLAS_STAND_IN)
#define PLEAT_ROCBLAS_GEMM
#endif

namespace pleat::kernels {

/// \brief Products in the order of `exec`, one after the other; the host waits for none.
///
/// fp32 is multiplied in fp32; bf16 with sums in fp32 that are rounded once. What rocBLAS
/// does not take, such as extents beyond 32 bits, is done by the portable kernel. It sums
/// without atomics: the same products give the same bits.
/// \throws InternalError PL0814 when rocBLAS fails
template <class T, class C = T>
void rocblas_gemms(const ExecSpace& exec,
                   std::span<const MatrixProduct<T, T, C>> products);

}  // namespace pleat::kernels
