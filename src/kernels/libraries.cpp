// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/libraries.hpp"

#include <type_traits>

#include <fmt/format.h>

#include "gemm_onednn.hpp"
#include "gemm_packed.hpp"

#if defined(PLEAT_HAVE_ONEDNN)
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace pleat::kernels {
namespace {

#if defined(PLEAT_HAVE_ONEDNN)
std::string onednn_name() {
  const dnnl_version_t* const version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}
#endif

/// What computes host_gemm where oneDNN does not, or the portable loop.
std::string host_products(bool bf16) {
#if defined(PLEAT_PACKED_GEMM) && defined(__AVX512F__)
  const std::string name = "packed kernel, AVX-512";
  if (bf16 && packed::kHasPairs) return name + " BF16";
#elif defined(PLEAT_PACKED_GEMM)
  const std::string name = "packed kernel, AVX2";
#elif defined(PLEAT_HOST_GEMM)
  const std::string name = "BLAS";
#else
  const std::string name = "portable kernel";
#endif
  return bf16 ? name + ", in fp32" : name;
}

}  // namespace

template <class T>
std::string product_library() {
  constexpr bool kBf16 = std::is_same_v<T, Bf16>;
#if defined(KOKKOS_ENABLE_CUDA)
  return kBf16 ? "portable kernel" : "cuBLAS through Kokkos Kernels";
#endif
#if defined(PLEAT_ONEDNN_GEMM)
  if (kBf16 && is_onednn_quickest()) return onednn_name();
#endif
  return host_products(kBf16);
}

template std::string product_library<float>();
template std::string product_library<double>();
template std::string product_library<Bf16>();

std::string linked_libraries() {
  std::string names;
#if defined(KOKKOS_ENABLE_CUDA)
  names += "cuBLAS, ";
#endif
#if defined(PLEAT_HAVE_BLAS)
  names += "BLAS, ";
#endif
#if defined(PLEAT_HAVE_ONEDNN)
  names += onednn_name() + ", ";
#endif
  return names.empty() ? "none" : names.substr(0, names.size() - 2);
}

}  // namespace pleat::kernels
