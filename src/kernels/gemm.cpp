// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/gemm.hpp"

#include <span>
#include <vector>

#include "gemm_cublaslt.hpp"
#include "gemm_groups.hpp"
#include "gemm_host.hpp"
#include "gemm_portable.hpp"
#include "gemm_rocblas.hpp"
#include "pleat/base/error.hpp"

namespace pleat::kernels {
namespace {

template <class T, class C>
void require_shapes(Transpose transpose_a, Transpose transpose_b,
                    const DeviceView<const T, 2>& a, const DeviceView<const T, 2>& b,
                    const DeviceView<C, 2>& c_MN) {
  const bool ta = transpose_a == Transpose::kYes;
  const bool tb = transpose_b == Transpose::kYes;
  PLEAT_ASSERT(a.extent(ta ? 1 : 0) == c_MN.extent(0) && b.extent(tb ? 0 : 1) == c_MN.extent(1) &&
                   a.extent(ta ? 0 : 1) == b.extent(tb ? 1 : 0),
               "gemm of a [{}, {}]{}, b [{}, {}]{}, c [{}, {}]", a.extent(0), a.extent(1),
               ta ? "^T" : "", b.extent(0), b.extent(1), tb ? "^T" : "", c_MN.extent(0),
               c_MN.extent(1));
}

/// Products that may run side by side, by the quickest way that this build has.
template <class T, class C>
void multiply(const ExecSpace& exec, std::span<const MatrixProduct<T, T, C>> products) {
#if defined(PLEAT_HOST_GEMM)
  host_gemms<T, C>(exec, products);
#elif defined(PLEAT_CUBLASLT_GEMM)
  cublaslt_gemms<T, C>(exec, products);
#elif defined(PLEAT_ROCBLAS_GEMM)
  rocblas_gemms<T, C>(exec, products);
#else
  for (const auto& product : products) portable_product<T, C>(exec, product);
#endif
}

/// A checked product.
template <class T, class C>
MatrixProduct<T, T, C> checked_product(Transpose transpose_a, Transpose transpose_b,
                                       Accumulator<T> alpha, const DeviceView<const T, 2>& a,
                                       const DeviceView<const T, 2>& b, Accumulator<T> beta,
                                       const DeviceView<C, 2>& c_MN) {
  require_shapes<T, C>(transpose_a, transpose_b, a, b, c_MN);
  return matrix_product<T, C>(transpose_a, transpose_b, alpha, a, b, beta, c_MN);
}

/// Rows [begin, end) of a matrix.
template <class T>
DeviceView<T, 2> rows(const DeviceView<T, 2>& matrix, std::int64_t begin, std::int64_t end) {
  return DeviceView<T, 2>(matrix.data() + begin * static_cast<std::int64_t>(matrix.stride(0)),
                          end - begin, matrix.extent(1));
}

/// Matrix e of a stack.
template <class T>
DeviceView<T, 2> slice(const DeviceView<T, 3>& stack, std::int64_t e) {
  return DeviceView<T, 2>(stack.data() + e * static_cast<std::int64_t>(stack.stride(0)),
                          stack.extent(1), stack.extent(2));
}

/// The products of a call, in memory that its thread keeps for the next one: a step allocates
/// nothing.
template <class T, class C>
std::vector<MatrixProduct<T, T, C>>& empty_list() {
  static thread_local std::vector<MatrixProduct<T, T, C>> list;
  list.clear();
  return list;
}

/// All groups at once, where the library that there is does that. \param make  the product
template <class T, class C, class Make>
bool multiply_together([[maybe_unused]] const ExecSpace& exec,
                       [[maybe_unused]] const Make& make) {
#if defined(PLEAT_CUBLASLT_GEMM)
  return cublaslt_grouped_gemm<T, C>(exec, make());
#else
  return false;
#endif
}

void require_offsets(const GroupOffsets& offsets, std::size_t rows, std::size_t groups) {
  PLEAT_ASSERT(offsets.host.size() == groups + 1, "{} group offsets for {} groups",
               offsets.host.size(), groups);
  PLEAT_ASSERT(offsets.host.back() <= static_cast<std::int64_t>(rows),
               "groups of {} rows over a matrix of {} rows", offsets.host.back(), rows);
}

}  // namespace

template <class T, class C>
void gemm(const ExecSpace& exec, Transpose transpose_a, Transpose transpose_b,
          Accumulator<T> alpha, const DeviceView<const T, 2>& a, const DeviceView<const T, 2>& b,
          Accumulator<T> beta, const DeviceView<C, 2>& c_MN) {
  const auto product =
      checked_product<T, C>(transpose_a, transpose_b, alpha, a, b, beta, c_MN);
  multiply<T, C>(exec, std::span(&product, 1));
}

template <class T>
void grouped_gemm_rows(const ExecSpace& exec, Transpose transpose_b, Accumulator<T> alpha,
                       const DeviceView<const T, 2>& a_RK, const DeviceView<const T, 3>& b,
                       Accumulator<T> beta, const DeviceView<T, 2>& c_RN,
                       const GroupOffsets& offsets) {
  require_offsets(offsets, a_RK.extent(0), b.extent(0));
  const auto whole = [&] {
    const std::int64_t all = offsets.host.back();
    return GroupedProduct<T, T>{
        .whole = checked_product<T, T>(Transpose::kNo, transpose_b, alpha,
                                       rows<const T>(a_RK, 0, all), slice<const T>(b, 0),
                                       beta, rows<T>(c_RN, 0, all)),
        .own_step = static_cast<std::int64_t>(b.stride(0)),
        .offsets = offsets};
  };
  if (multiply_together<T, T>(exec, whole)) return;
  auto& products = empty_list<T, T>();
  for (std::int64_t e = 0; e < offsets.groups(); ++e) {
    const std::int64_t begin = offsets.host[e];
    const std::int64_t end = offsets.host[e + 1];
    products.push_back(checked_product<T, T>(
        Transpose::kNo, transpose_b, alpha, rows<const T>(a_RK, begin, end),
        slice<const T>(b, e), beta, rows<T>(c_RN, begin, end)));
  }
  multiply<T, T>(exec, products);
}

template <class T>
void grouped_gemm_weights(const ExecSpace& exec, Accumulator<T> alpha,
                          const DeviceView<const T, 2>& a_RM, const DeviceView<const T, 2>& b_RN,
                          Accumulator<T> beta, const DeviceView<Gradient<T>, 3>& c_EMN,
                          const GroupOffsets& offsets) {
  using G = Gradient<T>;
  require_offsets(offsets, a_RM.extent(0), c_EMN.extent(0));
  const auto whole = [&] {
    const std::int64_t all = offsets.host.back();
    return GroupedProduct<T, G>{
        .whole = checked_product<T, G>(Transpose::kYes, Transpose::kNo, alpha,
                                       rows<const T>(a_RM, 0, all),
                                       rows<const T>(b_RN, 0, all), beta, slice<G>(c_EMN, 0)),
        .own_step = static_cast<std::int64_t>(c_EMN.stride(0)),
        .offsets = offsets};
  };
  if (multiply_together<T, G>(exec, whole)) return;
  auto& products = empty_list<T, G>();
  for (std::int64_t e = 0; e < offsets.groups(); ++e) {
    const std::int64_t begin = offsets.host[e];
    const std::int64_t end = offsets.host[e + 1];
    products.push_back(checked_product<T, G>(
        Transpose::kYes, Transpose::kNo, alpha, rows<const T>(a_RM, begin, end),
        rows<const T>(b_RN, begin, end), beta, slice<G>(c_EMN, e)));
  }
  multiply<T, G>(exec, products);
}

#define PLEAT_INSTANTIATE_GEMM(T, C)                                                           \
  template void gemm<T, C>(const ExecSpace&, Transpose, Transpose, Accumulator<T>,             \
                           const DeviceView<const T, 2>&, const DeviceView<const T, 2>&,       \
                           Accumulator<T>, const DeviceView<C, 2>&);
PLEAT_INSTANTIATE_GEMM(float, float)
PLEAT_INSTANTIATE_GEMM(double, double)
PLEAT_INSTANTIATE_GEMM(Bf16, Bf16)
PLEAT_INSTANTIATE_GEMM(Bf16, float)
#undef PLEAT_INSTANTIATE_GEMM

#define PLEAT_INSTANTIATE(T)                                                                   \
  template void grouped_gemm_rows<T>(const ExecSpace&, Transpose, Accumulator<T>,              \
                                     const DeviceView<const T, 2>&,                            \
                                     const DeviceView<const T, 3>&, Accumulator<T>,            \
                                     const DeviceView<T, 2>&, const GroupOffsets&);            \
  template void grouped_gemm_weights<T>(const ExecSpace&, Accumulator<T>,                      \
                                        const DeviceView<const T, 2>&,                         \
                                        const DeviceView<const T, 2>&, Accumulator<T>,         \
                                        const DeviceView<Gradient<T>, 3>&,                     \
                                        const GroupOffsets&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels
