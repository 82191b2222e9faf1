// SPDX-License-Identifier: Apache-2.0
#include "rocblas.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "pleat/base/bf16.hpp"

struct StandInRocblas {
  bool has_stream = false;
  bool atomics = true;  // as in rocBLAS
};

namespace {

std::optional<rocblas_status> next_answer;

/// A column-major matrix.
struct Matrix {
  void* data;
  rocblas_datatype type;
  std::int64_t stride;

  double get(std::int64_t row, std::int64_t column) const {
    const std::int64_t index = column * stride + row;
    switch (type) {
      case rocblas_datatype_f64_r:
        return static_cast<const double*>(data)[index];
      case rocblas_datatype_f32_r:
        return static_cast<const float*>(data)[index];
      case rocblas_datatype_bf16_r:
        break;
    }
    return static_cast<double>(static_cast<const pleat::Bf16*>(data)[index]);
  }
  void set(std::int64_t row, std::int64_t column, double value) const {
    const std::int64_t index = column * stride + row;
    switch (type) {
      case rocblas_datatype_f64_r:
        static_cast<double*>(data)[index] = value;
        return;
      case rocblas_datatype_f32_r:
        static_cast<float*>(data)[index] = static_cast<float>(value);
        return;
      case rocblas_datatype_bf16_r:
        break;
    }
    static_cast<pleat::Bf16*>(data)[index] = pleat::Bf16(value);
  }
};

/// op(matrix)[row, column].
double operand(const Matrix& matrix, rocblas_operation operation, std::int64_t row,
               std::int64_t column) {
  return operation == rocblas_operation_none ? matrix.get(row, column)
                                             : matrix.get(column, row);
}

double scalar(const void* value, rocblas_datatype type) {
  return type == rocblas_datatype_f64_r ? *static_cast<const double*>(value)
                                        : *static_cast<const float*>(value);
}

/// The combinations of rocBLAS's manual that the kernels have a use for.
bool is_combination(rocblas_datatype in, rocblas_datatype out, rocblas_datatype compute) {
  if (in == rocblas_datatype_bf16_r) {
    return compute == rocblas_datatype_f32_r &&
           (out == rocblas_datatype_bf16_r || out == rocblas_datatype_f32_r);
  }
  return in == out && in == compute;
}

bool is_stride(rocblas_int stride, rocblas_operation operation, rocblas_int rows,
               rocblas_int columns) {
  return stride >= std::max(1, operation == rocblas_operation_none ? rows : columns);
}

}  // namespace

stand_in::RocblasCalls& stand_in::rocblas_calls() {
  static RocblasCalls calls;
  return calls;
}

void stand_in::answer_next_product(rocblas_status status) { next_answer = status; }

rocblas_status rocblas_create_handle(rocblas_handle* handle) {
  ++stand_in::rocblas_calls().live_handles;
  *handle = new StandInRocblas;
  return rocblas_status_success;
}

rocblas_status rocblas_destroy_handle(rocblas_handle handle) {
  --stand_in::rocblas_calls().live_handles;
  delete handle;
  return rocblas_status_success;
}

rocblas_status rocblas_set_stream(rocblas_handle handle, cudaStream_t) {
  handle->has_stream = true;
  return rocblas_status_success;
}

rocblas_status rocblas_set_atomics_mode(rocblas_handle handle,
                                        rocblas_atomics_mode mode) {
  handle->atomics = mode == rocblas_atomics_allowed;
  return rocblas_status_success;
}

const char* rocblas_status_to_string(rocblas_status status) {
  return status == rocblas_status_internal_error ? "rocblas_status_internal_error"
                                                 : "another status";
}

rocblas_status rocblas_gemm_ex(rocblas_handle handle, rocblas_operation left_operation,
                               rocblas_operation right_operation, rocblas_int m,
                               rocblas_int n, rocblas_int k, const void* alpha,
                               const void* left, rocblas_datatype left_type,
                               rocblas_int left_stride, const void* right,
                               rocblas_datatype right_type, rocblas_int right_stride,
                               const void* beta, const void* before,
                               rocblas_datatype before_type, rocblas_int before_stride,
                               void* result, rocblas_datatype result_type,
                               rocblas_int result_stride, rocblas_datatype compute_type,
                               rocblas_gemm_algo, std::int32_t, std::uint32_t) {
  stand_in::RocblasCalls& calls = stand_in::rocblas_calls();
  if (next_answer) return *std::exchange(next_answer, std::nullopt);
  ++calls.products;
  if (handle->atomics) ++calls.with_atomics;
  if (!is_stride(left_stride, left_operation, m, k) ||
      !is_stride(right_stride, right_operation, k, n) || before_stride < m ||
      result_stride < m || m <= 0 || n <= 0 || k <= 0) {
    return rocblas_status_invalid_size;
  }
  if (!handle->has_stream || left_type != right_type || before != result ||
      before_type != result_type ||
      !is_combination(left_type, result_type, compute_type)) {
    return rocblas_status_invalid_value;
  }
  const Matrix a{const_cast<void*>(left), left_type, left_stride};
  const Matrix b{const_cast<void*>(right), right_type, right_stride};
  const Matrix c{result, result_type, result_stride};
  const double scale = scalar(beta, compute_type);
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t i = 0; i < m; ++i) {
      double sum = 0.0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += operand(a, left_operation, i, l) * operand(b, right_operation, l, j);
      }
      const double old = scale == 0.0 ? 0.0 : scale * c.get(i, j);
      c.set(i, j, scalar(alpha, compute_type) * sum + old);
    }
  }
  return rocblas_status_success;
}
