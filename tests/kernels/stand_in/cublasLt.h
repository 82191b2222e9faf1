// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What of cuBLASLt the kernels use, on host memory, over the streams of
/// tests/comm/stand_in. Products are formed late, on the thread of their stream.

#include <cstddef>
#include <cstdint>

#include "cuda_runtime.h"

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_64F = 70 };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16BF = 14 };
using cudaDataType = cudaDataType_t;
enum cublasLtPointerMode_t {
  CUBLASLT_POINTER_MODE_HOST = 0,
  CUBLASLT_POINTER_MODE_DEVICE = 1
};
enum cublasLtMatmulDescAttributes_t {
  CUBLASLT_MATMUL_DESC_POINTER_MODE = 2,
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4
};
enum cublasLtReductionScheme_t { CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2 };
enum cublasLtMatmulPreferenceAttributes_t {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
};

struct StandInHandle;
using cublasLtHandle_t = StandInHandle*;
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t left, right;
  std::int32_t pointer_mode;
};
enum cublasLtMatrixLayoutAttribute_t {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  std::uint64_t rows, columns;
  std::int64_t stride;
  std::int32_t count;  ///< of a batch, or of groups
  std::int64_t step;
  /// Of groups: their extents and strides on the device; otherwise null.
  const std::int32_t *group_rows, *group_columns, *group_strides;
  bool is_grouped() const { return group_rows != nullptr; }
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace;
  std::uint32_t reduction;
  std::uint32_t left, right, result, output;  ///< alignments
  std::int64_t average_sum, average_rows, average_columns;
};
/// \brief Remembers what it was chosen for; one for groups, whatever their averages, only its
/// number, as m.
struct cublasLtMatmulAlgo_t {
  std::uint64_t m, n, k, workspace;
  std::uint32_t left, right, result;  ///< alignments
  std::int32_t is_for_groups;         ///< 0: one product, or a batch
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspaceSize;
  cublasStatus_t state;
};
using cublasLtMatmulDesc_t = cublasLtMatmulDescOpaque_t*;
using cublasLtMatrixLayout_t = cublasLtMatrixLayoutOpaque_t*;
using cublasLtMatmulPreference_t = cublasLtMatmulPreferenceOpaque_t*;

std::size_t cublasLtGetVersion();
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);
const char* cublasLtGetStatusString(cublasStatus_t status);
cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t desc,
                                      cublasComputeType_t compute, cudaDataType scale);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* value, std::size_t bytes);
cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType type,
                                        std::uint64_t rows, std::uint64_t columns,
                                        std::int64_t stride);
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, std::size_t bytes);
cublasStatus_t cublasLtMatmulPreferenceInit_internal(
    cublasLtMatmulPreference_t preference, std::size_t bytes);
inline cublasStatus_t cublasLtMatmulPreferenceInit(
    cublasLtMatmulPreference_t preference) {
  return cublasLtMatmulPreferenceInit_internal(preference, sizeof(*preference));
}
/// \brief Not in the headers of older versions: what is tested looks it up by its name.
extern "C" cublasStatus_t cublasLtGroupedMatrixLayoutInit_internal(
    cublasLtMatrixLayout_t layout, std::size_t bytes, cudaDataType type, int groups,
    const void* rows, const void* columns, const void* strides);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which,
    const void* value, std::size_t bytes);
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t left,
    cublasLtMatrixLayout_t right, cublasLtMatrixLayout_t result,
    cublasLtMatrixLayout_t output, cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t results[], int* found);
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t left,
                                       cublasLtMatrixLayout_t right,
                                       cublasLtMatrixLayout_t result,
                                       cublasLtMatrixLayout_t output,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* found);
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                              const void* alpha, const void* left,
                              cublasLtMatrixLayout_t left_layout, const void* right,
                              cublasLtMatrixLayout_t right_layout, const void* beta,
                              const void* result, cublasLtMatrixLayout_t result_layout,
                              void* output, cublasLtMatrixLayout_t output_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream);

namespace stand_in {

/// \brief What the library was asked to do so far.
struct BlasCalls {
  int live_handles = 0;
  int asked = 0;     ///< for an algorithm
  int products = 0;  ///< launched
  int beside = 0;    ///< of them on other streams than the null one
  int asked_for_groups = 0;
  int grouped_products = 0;  ///< launched
  int groups = 0;            ///< of the last of them
  int wrong_groups = 0;  ///< whose arrays are such that a GPU would have done anything
};
BlasCalls& blas_calls();

/// \brief Whether an algorithm does for the shape that it was chosen for alone.
inline bool narrow_algorithms = false;
/// \brief Whether the next product fails.
inline bool fail_next_product = false;
/// \brief As cublasLtGetVersion() tells it. Those before 13.2 have no grouped product.
inline std::size_t version = 130802;
/// \brief Whether it has an algorithm for groups, and does what it has one for.
inline bool has_grouped_algorithms = true;
inline cublasStatus_t status_of_grouped_products = CUBLAS_STATUS_SUCCESS;
/// \brief Which algorithm it has for groups.
inline std::uint64_t grouped_algorithm = 1;
/// \brief Whether the sums of its last group are twice what they should be.
inline bool has_wrong_groups = false;

}  // namespace stand_in
