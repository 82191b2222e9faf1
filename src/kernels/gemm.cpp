// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/gemm.hpp"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "gemm_host.hpp"
#include "gemm_portable.hpp"
#include "pleat/base/error.hpp"

#if defined(KOKKOS_ENABLE_CUDA)
#include <KokkosBlas3_gemm.hpp>
#endif

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

/// One product of several that may run side by side.
template <class T, class C>
struct Product {
  Transpose transpose_a, transpose_b;
  DeviceView<const T, 2> a, b;
  DeviceView<C, 2> c_MN;
};

#if defined(PLEAT_HOST_GEMM)

template <class T>
std::int64_t row_stride(const DeviceView<T, 2>& view) {
  // BLAS wants a leading dimension of at least the row's length, even for a single row.
  const auto columns = static_cast<std::int64_t>(view.extent(1));
  const auto stride = static_cast<std::int64_t>(view.stride(0));
  return std::max({stride, columns, std::int64_t{1}});
}

template <class T, class C>
HostProduct<T, T, C> host_product(const Product<T, C>& x, Accumulator<T> alpha,
                                  Accumulator<T> beta) {
  HostProduct<T, T, C> result;
  result.m = x.c_MN.extent_int(0);
  result.n = x.c_MN.extent_int(1);
  result.k = x.a.extent_int(x.transpose_a == Transpose::kYes ? 0 : 1);
  result.transpose_a = x.transpose_a;
  result.transpose_b = x.transpose_b;
  result.alpha = alpha;
  result.a = x.a.data();
  result.a_stride = row_stride<const T>(x.a);
  result.b = x.b.data();
  result.b_stride = row_stride<const T>(x.b);
  result.beta = beta;
  result.c = x.c_MN.data();
  result.c_stride = row_stride<C>(x.c_MN);
  return result;
}

template <class T, class C>
void multiply(const ExecSpace& exec, Accumulator<T> alpha, Accumulator<T> beta,
              const std::vector<Product<T, C>>& products) {
  std::vector<HostProduct<T, T, C>> host;
  host.reserve(products.size());
  for (const Product<T, C>& x : products) host.push_back(host_product<T, C>(x, alpha, beta));
  host_gemms<T, C>(exec, host);
}

#else

template <class T, class C>
void multiply(const ExecSpace& exec, Accumulator<T> alpha, Accumulator<T> beta,
              const std::vector<Product<T, C>>& products) {
  for (const Product<T, C>& x : products) {
    if (x.c_MN.size() == 0) continue;
#if defined(KOKKOS_ENABLE_CUDA)
    // Libraries disagree about products over nothing; the portable kernel scales c by beta.
    if constexpr (std::is_same_v<T, Accumulator<T>>) {
      if (x.a.size() != 0) {
        KokkosBlas::gemm(exec, x.transpose_a == Transpose::kYes ? "T" : "N",
                         x.transpose_b == Transpose::kYes ? "T" : "N", alpha, x.a, x.b, beta,
                         x.c_MN);
        continue;
      }
    }
#endif
    portable_gemm<T, C>(exec, x.transpose_a, x.transpose_b, alpha, x.a, x.b, beta, x.c_MN);
  }
}

#endif

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
  require_shapes<T, C>(transpose_a, transpose_b, a, b, c_MN);
  multiply<T, C>(exec, alpha, beta, {{transpose_a, transpose_b, a, b, c_MN}});
}

template <class T>
void grouped_gemm_rows(const ExecSpace& exec, Transpose transpose_b, Accumulator<T> alpha,
                       const DeviceView<const T, 2>& a_RK, const DeviceView<const T, 3>& b,
                       Accumulator<T> beta, const DeviceView<T, 2>& c_RN,
                       const GroupOffsets& offsets) {
  require_offsets(offsets, a_RK.extent(0), b.extent(0));
  std::vector<Product<T, T>> products;
  for (std::int64_t e = 0; e < offsets.groups(); ++e) {
    const std::int64_t begin = offsets.host[e];
    const std::int64_t end = offsets.host[e + 1];
    products.push_back({Transpose::kNo, transpose_b, rows<const T>(a_RK, begin, end),
                        slice<const T>(b, e), rows<T>(c_RN, begin, end)});
    require_shapes<T, T>(Transpose::kNo, transpose_b, products.back().a, products.back().b,
                         products.back().c_MN);
  }
  multiply<T, T>(exec, alpha, beta, products);
}

template <class T>
void grouped_gemm_weights(const ExecSpace& exec, Accumulator<T> alpha,
                          const DeviceView<const T, 2>& a_RM, const DeviceView<const T, 2>& b_RN,
                          Accumulator<T> beta, const DeviceView<Gradient<T>, 3>& c_EMN,
                          const GroupOffsets& offsets) {
  using G = Gradient<T>;
  require_offsets(offsets, a_RM.extent(0), c_EMN.extent(0));
  std::vector<Product<T, G>> products;
  for (std::int64_t e = 0; e < offsets.groups(); ++e) {
    const std::int64_t begin = offsets.host[e];
    const std::int64_t end = offsets.host[e + 1];
    products.push_back({Transpose::kYes, Transpose::kNo, rows<const T>(a_RM, begin, end),
                        rows<const T>(b_RN, begin, end), slice<G>(c_EMN, e)});
    require_shapes<T, G>(Transpose::kYes, Transpose::kNo, products.back().a, products.back().b,
                         products.back().c_MN);
  }
  multiply<T, G>(exec, alpha, beta, products);
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
