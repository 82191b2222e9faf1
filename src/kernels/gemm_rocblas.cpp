// SPDX-License-Identifier: Apache-2.0
#include "gemm_rocblas.hpp"

#if defined(PLEAT_ROCBLAS_GEMM)

#include <algorithm>
#include <limits>
#include <type_traits>

#include <rocblas/rocblas.h>

#include "by_stream.hpp"
#include "gemm_portable.hpp"
#include "pleat/base/gpu_stream.hpp"

namespace pleat::kernels {
namespace {

void check_blas(rocblas_status status, const char* call) {
  PLEAT_REQUIRE(status == rocblas_status_success, InternalError, "PL0814",
                "{} failed: {}", call, rocblas_status_to_string(status));
}

template <class T>
constexpr rocblas_datatype data_type() {
  if constexpr (std::is_same_v<T, double>) {
    return rocblas_datatype_f64_r;
  } else if constexpr (std::is_same_v<T, float>) {
    return rocblas_datatype_f32_r;
  } else {
    return rocblas_datatype_bf16_r;
  }
}

rocblas_operation operation(Transpose transpose) {
  return transpose == Transpose::kYes ? rocblas_operation_transpose
                                      : rocblas_operation_none;
}

/// rocBLAS counts in 32 bits.
template <class T, class C>
bool is_countable(const MatrixProduct<T, T, C>& x) {
  const std::int64_t largest =
      std::max({x.m, x.n, x.k, x.a_stride, x.b_stride, x.c_stride});
  return largest <= std::numeric_limits<rocblas_int>::max();
}

/// \brief A handle whose calls queue on one stream and sum in a fixed order.
class Handle {
 public:
  explicit Handle(const ExecSpace& exec) {
    check_blas(rocblas_create_handle(&handle_), "rocblas_create_handle");
    check_blas(rocblas_set_stream(handle_, gpu::stream_of(exec)), "rocblas_set_stream");
    check_blas(rocblas_set_atomics_mode(handle_, rocblas_atomics_not_allowed),
               "rocblas_set_atomics_mode");
  }
  ~Handle() { (void)rocblas_destroy_handle(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  rocblas_handle get() const { return handle_; }

 private:
  rocblas_handle handle_ = nullptr;
};

/// A row-major matrix is its transpose in BLAS's column-major eyes: c^T = op(b)^T
/// op(a)^T.
template <class T, class C>
rocblas_status multiply(rocblas_handle handle, const MatrixProduct<T, T, C>& x) {
  const auto count = [](std::int64_t value) { return static_cast<rocblas_int>(value); };
  return rocblas_gemm_ex(
      handle, operation(x.transpose_b), operation(x.transpose_a), count(x.n), count(x.m),
      count(x.k), &x.alpha, x.b, data_type<T>(), count(x.b_stride), x.a, data_type<T>(),
      count(x.a_stride), &x.beta, x.c, data_type<C>(), count(x.c_stride), x.c,
      data_type<C>(), count(x.c_stride), data_type<Accumulator<T>>(),
      rocblas_gemm_algo_standard, 0, rocblas_gemm_flags_none);
}

}  // namespace

template <class T, class C>
void rocblas_gemms(const ExecSpace& exec,
                   std::span<const MatrixProduct<T, T, C>> products) {
  const Handle& handle = object_by_stream<Handle>(exec);
  for (const auto& product : products) {
    if (product.m == 0 || product.n == 0) continue;
    // Libraries disagree about products over nothing; the portable kernel scales c by
    // beta.
    rocblas_status status = rocblas_status_not_implemented;
    if (product.k > 0 && is_countable(product)) status = multiply(handle.get(), product);
    if (status == rocblas_status_not_implemented) {
      portable_product<T, C>(exec, product);
    } else {
      check_blas(status, "rocblas_gemm_ex");
    }
  }
}

#define PLEAT_INSTANTIATE(T, C)                       \
  template void rocblas_gemms<T, C>(const ExecSpace&, \
                                    std::span<const MatrixProduct<T, T, C>>);
PLEAT_INSTANTIATE(float, float)
PLEAT_INSTANTIATE(double, double)
PLEAT_INSTANTIATE(Bf16, Bf16)
PLEAT_INSTANTIATE(Bf16, float)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels

#endif
