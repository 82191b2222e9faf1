// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/gemm.hpp"

#include <algorithm>

#include "gemm_blas.hpp"
#include "gemm_portable.hpp"
#include "pleat/base/error.hpp"

#if defined(KOKKOS_ENABLE_CUDA)
#include <KokkosBlas3_gemm.hpp>
#endif

namespace pleat::kernels {
namespace {

template <class T>
void require_shapes(Transpose transpose_a, Transpose transpose_b,
                    const DeviceView<const T, 2>& a, const DeviceView<const T, 2>& b,
                    const DeviceView<T, 2>& c_MN) {
  const bool ta = transpose_a == Transpose::kYes;
  const bool tb = transpose_b == Transpose::kYes;
  PLEAT_ASSERT(a.extent(ta ? 1 : 0) == c_MN.extent(0) && b.extent(tb ? 0 : 1) == c_MN.extent(1) &&
                   a.extent(ta ? 0 : 1) == b.extent(tb ? 1 : 0),
               "gemm of a [{}, {}]{}, b [{}, {}]{}, c [{}, {}]", a.extent(0), a.extent(1),
               ta ? "^T" : "", b.extent(0), b.extent(1), tb ? "^T" : "", c_MN.extent(0),
               c_MN.extent(1));
}

#if defined(PLEAT_HOST_BLAS)
template <class T>
std::int64_t row_stride(const DeviceView<T, 2>& view) {
  // BLAS wants a leading dimension of at least the row's length, even for a single row.
  const auto columns = static_cast<std::int64_t>(view.extent(1));
  const auto stride = static_cast<std::int64_t>(view.stride(0));
  return std::max({stride, columns, std::int64_t{1}});
}
#endif

}  // namespace

template <class T>
void gemm(const ExecSpace& exec, Transpose transpose_a, Transpose transpose_b, T alpha,
          const DeviceView<const T, 2>& a, const DeviceView<const T, 2>& b, T beta,
          const DeviceView<T, 2>& c_MN) {
  require_shapes<T>(transpose_a, transpose_b, a, b, c_MN);
  if (c_MN.size() == 0) return;
  const std::int64_t inner = a.extent(transpose_a == Transpose::kYes ? 0 : 1);
  if (inner == 0) {
    // Libraries disagree about this case; the portable kernel scales c by beta.
    portable_gemm<T>(exec, transpose_a, transpose_b, alpha, a, b, beta, c_MN);
    return;
  }
#if defined(KOKKOS_ENABLE_CUDA)
  const char* const mode_a = transpose_a == Transpose::kYes ? "T" : "N";
  const char* const mode_b = transpose_b == Transpose::kYes ? "T" : "N";
  KokkosBlas::gemm(exec, mode_a, mode_b, alpha, a, b, beta, c_MN);
#elif defined(PLEAT_HOST_BLAS)
  const GemmShape shape{c_MN.extent_int(0), c_MN.extent_int(1), inner,      row_stride<const T>(a),
                        row_stride<const T>(b), row_stride<T>(c_MN), transpose_a, transpose_b};
  blas_gemm<T>(shape, alpha, a.data(), b.data(), beta, c_MN.data());
#else
  portable_gemm<T>(exec, transpose_a, transpose_b, alpha, a, b, beta, c_MN);
#endif
}

#define PLEAT_INSTANTIATE(T)                                                            \
  template void gemm<T>(const ExecSpace&, Transpose, Transpose, T,                      \
                        const DeviceView<const T, 2>&, const DeviceView<const T, 2>&, T, \
                        const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels
