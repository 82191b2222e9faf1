// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What of rocBLAS the kernels use, on host memory. The values are rocBLAS's own.
/// Products are formed at once: the stream of the execution space is the null stream,
/// which is the host.

#include <cstdint>

#include <cuda_runtime.h>

enum rocblas_status {
  rocblas_status_success = 0,
  rocblas_status_not_implemented = 2,
  rocblas_status_invalid_size = 4,
  rocblas_status_internal_error = 6,
  rocblas_status_invalid_value = 11
};
enum rocblas_operation {
  rocblas_operation_none = 111,
  rocblas_operation_transpose = 112
};
enum rocblas_datatype {
  rocblas_datatype_f32_r = 151,
  rocblas_datatype_f64_r = 152,
  rocblas_datatype_bf16_r = 168
};
enum rocblas_atomics_mode {
  rocblas_atomics_not_allowed = 0,
  rocblas_atomics_allowed = 1
};
enum rocblas_gemm_algo { rocblas_gemm_algo_standard = 0 };
enum rocblas_gemm_flags { rocblas_gemm_flags_none = 0 };
using rocblas_int = std::int32_t;
struct StandInRocblas;
using rocblas_handle = StandInRocblas*;

rocblas_status rocblas_create_handle(rocblas_handle* handle);
rocblas_status rocblas_destroy_handle(rocblas_handle handle);
rocblas_status rocblas_set_stream(rocblas_handle handle, cudaStream_t stream);
rocblas_status rocblas_set_atomics_mode(rocblas_handle handle, rocblas_atomics_mode mode);
const char* rocblas_status_to_string(rocblas_status status);
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
                               rocblas_gemm_algo algorithm, std::int32_t solution,
                               std::uint32_t flags);

/// \brief For tests: what has happened in this process, and what is to happen.
namespace stand_in {

struct RocblasCalls {
  int live_handles = 0;
  int products = 0;
  int with_atomics = 0;  ///< products that might sum in any order
};
RocblasCalls& rocblas_calls();
/// The next product returns this.
void answer_next_product(rocblas_status status);

}  // namespace stand_in
