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
// What it demands of all that belongs to a group, and of arrays of addresses.
constexpr std::uint32_t kGroupAlignment = 16;

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

/// That of one group. Reads what lies on the device.
Layout layout_of(const Layout& grouped, std::int32_t group) {
  return {.type = grouped.type,
          .rows = static_cast<std::uint64_t>(grouped.group_rows[group]),
          .columns = static_cast<std::uint64_t>(grouped.group_columns[group]),
          .stride = grouped.group_strides[group],
          .count = 1,
          .step = 0,
          .group_rows = nullptr,
          .group_columns = nullptr,
          .group_strides = nullptr};
}

bool is_group(const Layout& layout, const void* matrix) {
  const std::uint64_t size = layout.type == CUDA_R_16BF ? 2 : 4;
  return is_layout(layout) && is_aligned(matrix, kGroupAlignment) &&
         static_cast<std::uint64_t>(layout.stride) * size % kGroupAlignment == 0 &&
         layout.rows * size % kGroupAlignment == 0;
}

/// Products of all groups, whose arrays, alpha and beta are read when they run.
struct GroupedProduct {
  cublasLtMatmulDescOpaque_t desc;
  Layout left_layout, right_layout, result_layout;
  const void* const* left;
  const void* const* right;
  void* const* result;
  const void* alpha;
  const void* beta;

  double factor(std::int32_t group) const {
    return stand_in::has_wrong_groups && group == result_layout.count - 1 ? 2.0 : 1.0;
  }
  void run() const {
    for (std::int32_t g = 0; g < result_layout.count; ++g) {
      const Product one{desc,
                        layout_of(left_layout, g),
                        layout_of(right_layout, g),
                        layout_of(result_layout, g),
                        left[g],
                        right[g],
                        result[g],
                        number(alpha, desc.scale) * factor(g),
                        number(beta, desc.scale)};
      if (one.fits() && is_group(one.left_layout, one.left) &&
          is_group(one.right_layout, one.right) &&
          is_group(one.result_layout, one.result)) {
        one.run();
      } else {
        ++stand_in::blas_calls().wrong_groups;
      }
    }
  }
};

/// Whether the library does such groups, whatever their shapes, which it does not see.
bool is_grouped_product(const cublasLtMatmulDescOpaque_t& desc, const Layout& left,
                        const Layout& right, const Layout& result) {
  return left.is_grouped() && right.is_grouped() && result.is_grouped() &&
         left.count == result.count && right.count == result.count &&
         left.type == CUDA_R_16BF && right.type == CUDA_R_16BF &&
         result.type != CUDA_R_64F && desc.compute == CUBLAS_COMPUTE_32F &&
         desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
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

std::size_t cublasLtGetVersion() { return stand_in::version; }

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
  *desc = {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_POINTER_MODE_HOST};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* value, std::size_t bytes) {
  if (bytes != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
  if (which == CUBLASLT_MATMUL_DESC_POINTER_MODE) {
    std::memcpy(&desc->pointer_mode, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  auto& place = which == CUBLASLT_MATMUL_DESC_TRANSA ? desc->left : desc->right;
  std::memcpy(&place, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType type,
                                        std::uint64_t rows, std::uint64_t columns,
                                        std::int64_t stride) {
  *layout = {type, rows, columns, stride, 1, 0, nullptr, nullptr, nullptr};
  return is_layout(*layout) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtGroupedMatrixLayoutInit_internal(
    cublasLtMatrixLayout_t layout, std::size_t bytes, cudaDataType type, int groups,
    const void* rows, const void* columns, const void* strides) {
  // As much as the real ones want, of which some headers have less.
  constexpr std::size_t kBytes = 14 * sizeof(std::uint64_t);
  if (bytes < kBytes || groups <= 0 || rows == nullptr || columns == nullptr ||
      strides == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *layout = {type,
             0,
             0,
             0,
             groups,
             0,
             static_cast<const std::int32_t*>(rows),
             static_cast<const std::int32_t*>(columns),
             static_cast<const std::int32_t*>(strides)};
  return CUBLAS_STATUS_SUCCESS;
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

cublasStatus_t cublasLtMatmulPreferenceInit_internal(
    cublasLtMatmulPreference_t preference, std::size_t bytes) {
  if (bytes < sizeof(*preference)) return CUBLAS_STATUS_INVALID_VALUE;
  *preference = {0, 7, 256, 256, 256, 256, 0, 0, 0};
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
  // Beyond what the enumeration of older headers names: 13, 14 and 15.
  switch (static_cast<int>(which)) {
    case 13:
      return set(preference->average_sum);
    case 14:
      return set(preference->average_rows);
    case 15:
      return set(preference->average_columns);
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

namespace {

/// Chosen by averages alone: the arrays need not have been formed.
cublasStatus_t choose_for_groups(const cublasLtMatmulDescOpaque_t& desc,
                                 const Layout& left, const Layout& right,
                                 const Layout& result,
                                 const cublasLtMatmulPreferenceOpaque_t& preference,
                                 cublasLtMatmulHeuristicResult_t& chosen, int* found) {
  ++stand_in::blas_calls().asked_for_groups;
  if (!is_grouped_product(desc, left, right, result) || preference.average_sum <= 0 ||
      preference.average_rows <= 0 || preference.average_columns <= 0 ||
      preference.reduction != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *found = 0;
  if (!stand_in::has_grouped_algorithms || preference.left < kGroupAlignment ||
      preference.right < kGroupAlignment || preference.result < kGroupAlignment) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  *found = 1;
  chosen = {{stand_in::grouped_algorithm, 0, 0, preference.workspace, preference.left,
             preference.right, preference.result, 1},
            preference.workspace,
            CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}

/// Late, on the thread of the stream; the null stream is the calling thread.
template <class Product>
cublasStatus_t launch(const Product& product, cudaStream_t stream) {
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

cublasStatus_t multiply_groups(const GroupedProduct& product,
                               const cublasLtMatmulAlgo_t& algorithm,
                               const void* workspace, std::size_t workspace_bytes,
                               cudaStream_t stream) {
  if (stand_in::status_of_grouped_products != CUBLAS_STATUS_SUCCESS) {
    return stand_in::status_of_grouped_products;
  }
  if (!is_grouped_product(product.desc, product.left_layout, product.right_layout,
                          product.result_layout) ||
      algorithm.is_for_groups == 0 ||
      !is_aligned(product.left, kGroupAlignment) ||
      !is_aligned(product.right, kGroupAlignment) ||
      !is_aligned(product.result, kGroupAlignment) || workspace == nullptr ||
      workspace_bytes < algorithm.workspace) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  ++stand_in::blas_calls().grouped_products;
  stand_in::blas_calls().groups = product.result_layout.count;
  return launch(product, stream);
}

}  // namespace

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t left,
    cublasLtMatrixLayout_t right, cublasLtMatrixLayout_t result,
    cublasLtMatrixLayout_t output, cublasLtMatmulPreference_t preference, int,
    cublasLtMatmulHeuristicResult_t results[], int* found) {
  if (result->is_grouped()) {
    return choose_for_groups(*desc, *left, *right, *result, *preference, results[0],
                             found);
  }
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
                 preference->left, preference->right, preference->result, 0},
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
  if (!result_layout->is_grouped()) ++stand_in::blas_calls().products;
  if (std::exchange(stand_in::fail_next_product, false))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  if (result_layout->is_grouped()) {
    if (result != output) return CUBLAS_STATUS_INVALID_VALUE;
    return multiply_groups(
        {*desc, *left_layout, *right_layout, *result_layout,
         static_cast<const void* const*>(left), static_cast<const void* const*>(right),
         static_cast<void* const*>(output), alpha, beta},
        *algorithm, workspace, workspace_bytes, stream);
  }
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
  return launch(product, stream);
}
