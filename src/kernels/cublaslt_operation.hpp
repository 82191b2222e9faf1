// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Products in the words of cuBLASLt, and the question for an algorithm. For
/// gemm_cublaslt.cpp.

#include <cstdint>
#include <optional>

#include <cublasLt.h>

#include "cublaslt_grouped.hpp"
#include "cublaslt_shape.hpp"
#include "gemm_groups.hpp"
#include "pleat/base/error.hpp"

namespace pleat::kernels::cublaslt {

/// \brief What cuBLAS itself sets aside on Hopper.
inline constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

inline void check_blas(cublasStatus_t status, const char* call) {
  PLEAT_REQUIRE(status == CUBLAS_STATUS_SUCCESS, InternalError, "PL0813", "{} failed: {}",
                call, cublasLtGetStatusString(status));
}

template <class Value>
void set_operation(cublasLtMatmulDescOpaque_t& operation,
                   cublasLtMatmulDescAttributes_t which, Value value) {
  check_blas(cublasLtMatmulDescSetAttribute(&operation, which, &value, sizeof(value)),
             "cublasLtMatmulDescSetAttribute");
}

/// \brief A row-major matrix is its transpose in BLAS's column-major eyes: c^T = op(b)^T
/// op(a)^T.
inline void init_operation(cublasLtMatmulDescOpaque_t& operation, const Shape& x) {
  const bool is_fp64 = x.in == CUDA_R_64F;
  check_blas(cublasLtMatmulDescInit(&operation,
                                    is_fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                    is_fp64 ? CUDA_R_64F : CUDA_R_32F),
             "cublasLtMatmulDescInit");
  set_operation(operation, CUBLASLT_MATMUL_DESC_TRANSA,
                x.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set_operation(operation, CUBLASLT_MATMUL_DESC_TRANSB,
                x.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
}

/// \brief One product, or a batch of them.
class Operation {
 public:
  explicit Operation(const Shape& x) {
    init_operation(operation, x);
    set_layout(left, x.in, x.transpose_b ? x.k : x.n, x.transpose_b ? x.n : x.k,
               x.b_stride);
    set_layout(right, x.in, x.transpose_a ? x.m : x.k, x.transpose_a ? x.k : x.m,
               x.a_stride);
    set_layout(result, x.out, x.n, x.m, x.c_stride);
    if (x.count == 1) return;
    set_batch(left, x.count, x.b_step);
    set_batch(right, x.count, x.a_step);
    set_batch(result, x.count, x.c_step);
  }

  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t left{}, right{}, result{};

 private:
  static void set_layout(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t type,
                         std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    check_blas(cublasLtMatrixLayoutInit(&layout, type, static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(columns), stride),
               "cublasLtMatrixLayoutInit");
  }
  static void set_batch(cublasLtMatrixLayoutOpaque_t& layout, std::int64_t count,
                        std::int64_t step) {
    const auto set = [&](cublasLtMatrixLayoutAttribute_t which, auto value) {
      check_blas(cublasLtMatrixLayoutSetAttribute(&layout, which, &value, sizeof(value)),
                 "cublasLtMatrixLayoutSetAttribute");
    };
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(count));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  }
};

/// \brief The products of all groups. Their arrays on the device are formed before they
/// are used, not before they are named here. \param average  its count is the number of
/// groups
class GroupedOperation {
 public:
  GroupedOperation(const Shape& average, const GroupArrays& arrays) {
    init_operation(operation, average);
    // alpha and beta lie on the device, beside the arrays: those of the host are what
    // libraries have had errors with (cublaslt_grouped.hpp).
    set_operation(operation, CUBLASLT_MATMUL_DESC_POINTER_MODE,
                  std::int32_t{CUBLASLT_POINTER_MODE_DEVICE});
    const auto groups = static_cast<int>(average.count);
    set_layout(left, 0, average.in, groups, arrays);
    set_layout(right, 1, average.in, groups, arrays);
    set_layout(result, 2, average.out, groups, arrays);
  }

  cublasLtMatmulDescOpaque_t operation{};
  GroupedLayout left, right, result;

 private:
  static void set_layout(GroupedLayout& layout, int matrix, cudaDataType_t type,
                         int groups, const GroupArrays& arrays) {
    check_blas(grouped_layout_init()(layout.get(), GroupedLayout::bytes(), type, groups,
                                     arrays.extent(matrix, GroupArrays::kRows),
                                     arrays.extent(matrix, GroupArrays::kColumns),
                                     arrays.extent(matrix, GroupArrays::kStride)),
               "cublasLtGroupedMatrixLayoutInit");
  }
};

class Handle {
 public:
  Handle() { check_blas(cublasLtCreate(&handle_), "cublasLtCreate"); }
  ~Handle() { (void)cublasLtDestroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cublasLtHandle_t get() const { return handle_; }

 private:
  cublasLtHandle_t handle_ = nullptr;
};

template <class Value>
void prefer(cublasLtMatmulPreference_t preference,
            cublasLtMatmulPreferenceAttributes_t which, Value value) {
  check_blas(
      cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof(value)),
      "cublasLtMatmulPreferenceSetAttribute");
}

/// \brief What sums in a fixed order and rounds once.
inline void prefer_what_suits(cublasLtMatmulPreference_t preference, const Shape& shape) {
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
         std::uint64_t{kWorkspaceBytes});
  prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.b_alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.a_alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.c_alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.c_alignment);
}

using Algorithm = std::optional<cublasLtMatmulAlgo_t>;

/// \brief The library's choice.
inline Algorithm ask_for_algorithm(const Handle& handle, const Shape& shape) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  check_blas(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  prefer_what_suits(&preference, shape);
  Operation x(shape);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle.get(), &x.operation, &x.left, &x.right, &x.result, &x.result, &preference, 1,
      &found, &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
  if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS) return {};
  return found.algo;
}

/// \brief The same for all groups, whose average shape it is. Whatever the library says
/// against an experiment of its own, the products can be had one by one.
inline Algorithm ask_for_groups(const Handle& handle, const Shape& average,
                                const GroupArrays& arrays) {
  GroupedPreference preference;
  check_blas(
      cublasLtMatmulPreferenceInit_internal(preference.get(), GroupedPreference::bytes()),
      "cublasLtMatmulPreferenceInit");
  prefer_what_suits(preference.get(), average);
  prefer(preference.get(), kAverageRows, average.n);
  prefer(preference.get(), kAverageColumns, average.m);
  prefer(preference.get(), kAverageSum, average.k);
  GroupedOperation x(average, arrays);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle.get(), &x.operation, x.left.get(), x.right.get(), x.result.get(),
      x.result.get(), preference.get(), 1, &found, &count);
  const bool is_usable = status == CUBLAS_STATUS_SUCCESS && count > 0 &&
                         found.state == CUBLAS_STATUS_SUCCESS &&
                         found.workspaceSize <= kWorkspaceBytes;
  return is_usable ? Algorithm(found.algo) : Algorithm();
}

}  // namespace pleat::kernels::cublaslt
