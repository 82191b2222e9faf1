// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/error.hpp"
#include "pleat/kernels/gemm.hpp"

namespace pleat::kernels {
namespace {

/// Rows [begin, end) of a matrix.
template <class T>
DeviceView<T, 2> rows(const DeviceView<T, 2>& matrix, std::int64_t begin, std::int64_t end) {
  return DeviceView<T, 2>(matrix.data() + begin * matrix.stride(0), end - begin,
                          matrix.extent(1));
}

/// Matrix e of a stack.
template <class T>
DeviceView<T, 2> slice(const DeviceView<T, 3>& stack, std::int64_t e) {
  return DeviceView<T, 2>(stack.data() + e * stack.stride(0), stack.extent(1), stack.extent(2));
}

void require_offsets(const GroupOffsets& offsets, std::size_t rows, std::size_t groups) {
  PLEAT_ASSERT(offsets.host.size() == groups + 1, "{} group offsets for {} groups",
               offsets.host.size(), groups);
  PLEAT_ASSERT(offsets.host.back() <= static_cast<std::int64_t>(rows),
               "groups of {} rows over a matrix of {} rows", offsets.host.back(), rows);
}

}  // namespace

template <class T>
void grouped_gemm_rows(const ExecSpace& exec, Transpose transpose_b, T alpha,
                       const DeviceView<const T, 2>& a_RK, const DeviceView<const T, 3>& b,
                       T beta, const DeviceView<T, 2>& c_RN, const GroupOffsets& offsets) {
  require_offsets(offsets, a_RK.extent(0), b.extent(0));
  for (std::int64_t e = 0; e < offsets.groups(); ++e) {
    const std::int64_t begin = offsets.host[e];
    const std::int64_t end = offsets.host[e + 1];
    gemm<T>(exec, Transpose::kNo, transpose_b, alpha, rows<const T>(a_RK, begin, end), slice<const T>(b, e), beta,
            rows<T>(c_RN, begin, end));
  }
}

template <class T>
void grouped_gemm_weights(const ExecSpace& exec, T alpha, const DeviceView<const T, 2>& a_RM,
                          const DeviceView<const T, 2>& b_RN, T beta,
                          const DeviceView<T, 3>& c_EMN, const GroupOffsets& offsets) {
  require_offsets(offsets, a_RM.extent(0), c_EMN.extent(0));
  for (std::int64_t e = 0; e < offsets.groups(); ++e) {
    const std::int64_t begin = offsets.host[e];
    const std::int64_t end = offsets.host[e + 1];
    gemm<T>(exec, Transpose::kYes, Transpose::kNo, alpha, rows<const T>(a_RM, begin, end),
            rows<const T>(b_RN, begin, end), beta, slice<T>(c_EMN, e));
  }
}

#define PLEAT_INSTANTIATE(T)                                                                   \
  template void grouped_gemm_rows<T>(const ExecSpace&, Transpose, T,                           \
                                     const DeviceView<const T, 2>&,                            \
                                     const DeviceView<const T, 3>&, T,                         \
                                     const DeviceView<T, 2>&, const GroupOffsets&);            \
  template void grouped_gemm_weights<T>(const ExecSpace&, T, const DeviceView<const T, 2>&,    \
                                        const DeviceView<const T, 2>&, T,                      \
                                        const DeviceView<T, 3>&, const GroupOffsets&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels
