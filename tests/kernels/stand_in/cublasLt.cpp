// SPDX-License-Identifier: Apache-2.0
#include "cublasLt.h"

#include <cstring>
#include <utility>

#include "pleat/base/bf16.hpp"
#include "stream.hpp"

struct StandInHandle {};

namespace {

using Layout = cublasLtMatrixLayoutOpaque_t;

// Like the real one, the library has nothing for what is aligned too badly.
constexpr std::uint32_t kLeastAlignment = 4;

bool is_aligned(const void* address, std::uint32_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

/// Where an element of matrix `b` of a batch lies.
std::uint64_t index_of(const Layout& layout, std::int64_t b, std::uint64_t row,
                       std::uint64_t column) {
  return static_cast<std::uint64_t>(b * layout.step) +
         column * static_cast<std::uint64_t>(layout.stride) + row;
}

double element(const void* data, const Layout& layout, std::uint64_t index) {
  switch (layout.type) {
    case CUDA_R_64F:
      return static_cast<const double*>(data)[index];
    case CUDA_R_32F:
      return static_cast<const float*>(data)[index];
    case CUDA_R_16BF:
      break;
  }
  return static_cast<double>(static_cast<const pleat::Bf16*>(data)[index]);
}

void set_element(void* data, const Layout& layout, std::uint64_t index, double value) {
  switch (layout.type) {
    case CUDA_R_64F:
      static_cast<double*>(data)[index] = value;
      return;
    case CUDA_R_32F:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      return;
    case CUDA_R_16BF:
      break;
  }
  static_cast<pleat::Bf16*>(data)[index] = pleat::Bf16(static_cast<float>(value));
}

/// One product with copies of all that the caller may change after the launch.
struct Product {
  cublasLtMatmulDescOpaque_t desc;
  Layout left_layout, right_layout, result_layout;
  const void* left;
  const void* right;
  void* result;
  double alpha, beta;

  std::uint64_t inner() const {
    return desc.left == CUBLAS_OP_T ? left_layout.rows : left_layout.columns;
  }
  bool fits() const {
    const bool tl = desc.left == CUBLAS_OP_T;
    const bool tr = desc.right == CUBLAS_OP_T;
    return (tl ? left_layout.columns : left_layout.rows) == result_layout.rows &&
           (tr ? right_layout.rows : right_layout.columns) == result_layout.columns &&
           (tr ? right_layout.columns : right_layout.rows) == inner() &&
           left_layout.count == result_layout.count &&
           right_layout.count == result_layout.count;
  }
  void run() const {
    for (std::int64_t b = 0; b < result_layout.count; ++b) run_one(b);
  }
  void run_one(std::int64_t b) const {
    const bool tl = desc.left == CUBLAS_OP_T;
    const bool tr = desc.right == CUBLAS_OP_T;
    for (std::uint64_t j = 0; j < result_layout.columns; ++j) {
      for (std::uint64_t i = 0; i < result_layout.rows; ++i) {
        double sum = 0.0;
        for (std::uint64_t k = 0; k < inner(); ++k) {
          const auto l = index_of(left_layout, b, tl ? k : i, tl ? i : k);
          const auto r = index_of(right_layout, b, tr ? j : k, tr ? k : j);
          sum += element(left, left_layout, l) * element(right, right_layout, r);
        }
        const auto place = index_of(result_layout, b, i, j);
        const double before =
            beta == 0.0 ? 0.0 : beta * element(result, result_layout, place);
        set_element(result, result_layout, place, alpha * sum + before);
      }
    }
  }
};

double number(const void* value, cudaDataType type) {
  return type == CUDA_R_64F ? *static_cast<const double*>(value)
                            : static_cast<double>(*static_cast<const float*>(value));
}

bool is_layout(const Layout& layout) {
  return layout.rows > 0 && layout.columns > 0 &&
         layout.stride >= static_cast<std::int64_t>(layout.rows);
}

bool is_in_range(const cublasLtMatmulAlgo_t& algorithm, const Product& product) {
  return !stand_in::narrow_algorithms ||
         (algorithm.m == product.result_layout.rows &&
          algorithm.n == product.result_layout.columns && algorithm.k == product.inner());
}

}  // namespace

stand_in::BlasCalls& stand_in::blas_calls() {
  static BlasCalls calls;
  return calls;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  ++stand_in::blas_calls().live_handles;
  *handle = new StandInHandle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  --stand_in::blas_calls().live_handles;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_EXECUTION_FAILED ? "execution failed" : "another status";
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t desc,
                                      cublasComputeType_t compute, cudaDataType scale) {
  *desc = {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* value, std::size_t bytes) {
  if (bytes != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
  auto& place = which == CUBLASLT_MATMUL_DESC_TRANSA ? desc->left : desc->right;
  std::memcpy(&place, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType type,
                                        std::uint64_t rows, std::uint64_t columns,
                                        std::int64_t stride) {
  *layout = {type, rows, columns, stride, 1, 0};
  return is_layout(*layout) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, std::size_t bytes) {
  const bool count = which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
  if (bytes != (count ? sizeof(layout->count) : sizeof(layout->step))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(count ? static_cast<void*>(&layout->count) : &layout->step, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference) {
  *preference = {0, 7, 256, 256, 256, 256};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which,
    const void* value, std::size_t bytes) {
  const auto set = [&](auto& place) {
    if (bytes != sizeof(place)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&place, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (which) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(preference->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set(preference->reduction);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return set(preference->left);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return set(preference->right);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return set(preference->result);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(preference->output);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t left,
    cublasLtMatrixLayout_t right, cublasLtMatrixLayout_t result,
    cublasLtMatrixLayout_t output, cublasLtMatmulPreference_t preference, int,
    cublasLtMatmulHeuristicResult_t results[], int* found) {
  ++stand_in::blas_calls().asked;
  const Product product{*desc,   *left,   *right, *result, nullptr,
                        nullptr, nullptr, 0.0,    0.0};
  const bool in_fp64 = left->type == CUDA_R_64F;
  // Sums in another order each time, or rounded before their end, are not wanted.
  if (!product.fits() || output != result || preference->output != preference->result ||
      preference->reduction != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE ||
      desc->compute != (in_fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *found = 0;
  if (preference->left < kLeastAlignment || preference->right < kLeastAlignment ||
      preference->result < kLeastAlignment) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  *found = 1;
  results[0] = {{result->rows, result->columns, product.inner(), preference->workspace,
                 preference->left, preference->right, preference->result},
                preference->workspace,
                CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(
    cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t left,
    cublasLtMatrixLayout_t right, cublasLtMatrixLayout_t result, cublasLtMatrixLayout_t,
    const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* found) {
  const Product product{*desc,   *left,   *right, *result, nullptr,
                        nullptr, nullptr, 0.0,    0.0};
  if (!is_in_range(*algorithm, product)) return CUBLAS_STATUS_NOT_SUPPORTED;
  found->workspaceSize = algorithm->workspace;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                              const void* alpha, const void* left,
                              cublasLtMatrixLayout_t left_layout, const void* right,
                              cublasLtMatrixLayout_t right_layout, const void* beta,
                              const void* result, cublasLtMatrixLayout_t result_layout,
                              void* output, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  ++stand_in::blas_calls().products;
  if (std::exchange(stand_in::fail_next_product, false))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  const Product product{*desc,
                        *left_layout,
                        *right_layout,
                        *result_layout,
                        left,
                        right,
                        output,
                        number(alpha, desc->scale),
                        number(beta, desc->scale)};
  if (!product.fits() || result != output || !is_in_range(*algorithm, product) ||
      !is_aligned(left, algorithm->left) || !is_aligned(right, algorithm->right) ||
      !is_aligned(output, algorithm->result) || workspace == nullptr ||
      workspace_bytes < algorithm->workspace) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (stream == nullptr) {
    product.run();
    return CUBLAS_STATUS_SUCCESS;
  }
  // Nothing holds the stream back: it would read what is not there yet.
  if (!stream->after_exec) return CUBLAS_STATUS_INVALID_VALUE;
  ++stand_in::blas_calls().beside;
  stream->push([product] { product.run(); });
  return CUBLAS_STATUS_SUCCESS;
}
