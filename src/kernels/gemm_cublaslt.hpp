// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Matrix products by cuBLASLt on NVIDIA GPUs (docs/adr/0017).
///
/// PLEAT_CUBLASLT_GEMM is defined where they are. PLEAT_CUBLASLT_STAND_IN compiles the
/// same code over a stand-in on host memory (tests/kernels/stand_in).

#include <span>
#include <string>

#include "gemm_groups.hpp"
#include "gemm_product.hpp"

#if defined(KOKKOS_ENABLE_CUDA) || defined(PLEAT_CUBLASLT_STAND_IN)
#define PLEAT_CUBLASLT_GEMM
#endif

namespace pleat::kernels {

/// \brief Independent products, queued in the order of `exec`; the host waits for none.
/// Several run side by side, on streams that begin after what `exec` has been given and
/// that what it is given later waits for.
///
/// fp32 is multiplied in fp32, without TF32; bf16 with sums in fp32 that are rounded
/// once. What cuBLASLt has no algorithm for, as for odd alignments, is done by the
/// portable kernel. The algorithm follows from shape and alignment alone: the same
/// products give the same bits. \throws InternalError PL0813 when cuBLASLt fails, PL0812
/// when CUDA does
template <class T, class C = T>
void cublaslt_gemms(const ExecSpace& exec,
                    std::span<const MatrixProduct<T, T, C>> products);

/// \brief Products of one shape whose matrices lie so many elements apart; with step 0
/// all read the same one.
template <class T, class C = T>
struct ProductBatch {
  MatrixProduct<T, T, C> first;
  std::int64_t count = 1;
  std::int64_t a_step = 0, b_step = 0, c_step = 0;
};

/// \brief All products of a batch by one call, otherwise as cublaslt_gemms().
template <class T, class C = T>
void cublaslt_gemm_batch(const ExecSpace& exec, const ProductBatch<T, C>& batch);

/// \brief The products of all groups by one call, in the order of `exec`, whatever the
/// number of groups: shapes and matrices are formed on the device. Sums and errors as in
/// cublaslt_gemms(). The first call with an algorithm waits, and compares some sums with
/// plain ones.
/// \return false where cublaslt_gemms() has to do them: somebody wishes it, the library at
/// run time, the GPU, the type or the alignment is none that NVIDIA documents for it, the
/// library has no algorithm, or refuses its own, which is told once. c is as it was.
/// \throws InternalError PL0813 also where sums are wrong; InputError PL0108
template <class T, class C = T>
bool cublaslt_grouped_gemm(const ExecSpace& exec, const GroupedProduct<T, C>& product);

/// \brief "cuBLASLt 13.8.2", the library that is loaded.
std::string cublaslt_name();

/// \brief How products of experts in bf16 go: "in one call", or "one by one (...)" and
/// why.
std::string cublaslt_grouped_way();

/// \brief Whether the products of groups go one by one in any case, for comparisons. At
/// first they do where the environment's PLEAT_GROUPED_PRODUCTS is "one-by-one".
/// \throws InputError PL0108 where it is neither that nor empty
void set_groups_one_by_one(bool value);

}  // namespace pleat::kernels
