// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What multiplies matrices and forms attention in this build and on this machine,
/// for reports.

#include <string>

namespace pleat::kernels {

/// \brief What gemm<T> hands a product to: "packed kernel, AVX2", "oneDNN 2.7.3", "BLAS",
/// "cuBLASLt 13.8.2", in bf16 "cuBLASLt 13.8.2, experts in one call" or "... one by one"
/// and why, "rocBLAS", "portable kernel".
template <class T>
std::string product_library();

/// \brief What attention in bf16 hands whole sequences to: "cuDNN 9.28.1, else cuBLASLt",
/// "cuBLASLt (cuDNN is not on this machine)", "cuBLASLt (as PLEAT_ATTENTION says)", "tiles on
/// the host", "portable kernel".
std::string attention_library();

/// \brief The libraries that were found when the program was built, whether a product
/// goes to them or not: "BLAS, oneDNN 2.7.3"; "none".
std::string linked_libraries();

}  // namespace pleat::kernels
