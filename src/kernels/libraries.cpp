// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/libraries.hpp"

#include <type_traits>

#include <dlfcn.h>
#include <fmt/format.h>

#include "attention_cudnn.hpp"
#include "attention_graphs.hpp"
#include "gemm_cublaslt.hpp"
#include "gemm_onednn.hpp"
#include "gemm_packed.hpp"
#include "gemm_rocblas.hpp"

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

#if defined(PLEAT_HAVE_BLAS)
/// Every BLAS offers the same names; OpenBLAS says which it is and for which cores its kernels are.
std::string blas_name() {
  using Config = const char*();
  auto* const config = reinterpret_cast<Config*>(dlsym(RTLD_DEFAULT, "openblas_get_config"));
  return config == nullptr ? "BLAS" : config();
}
#endif

#if defined(PLEAT_HOST_GEMM)
/// What computes the tasks of host_gemms where oneDNN does not.
std::string host_products(bool bf16) {
#if defined(PLEAT_PACKED_GEMM) && defined(__AVX512F__)
  const std::string name = "packed kernel, AVX-512";
  if (bf16 && packed::kHasPairs) return name + " BF16";
#elif defined(PLEAT_PACKED_GEMM)
  const std::string name = "packed kernel, AVX2";
#else
  const std::string name = blas_name();
#endif
  return bf16 ? name + ", in fp32" : name;
}
#endif

}  // namespace

// In the order in which gemm.cpp chooses.
template <class T>
std::string product_library() {
#if defined(PLEAT_HOST_GEMM)
  constexpr bool kBf16 = std::is_same_v<T, Bf16>;
#if defined(PLEAT_ONEDNN_GEMM)
  if (kBf16 && is_onednn_quickest()) return onednn_name();
#endif
  return host_products(kBf16);
#elif defined(PLEAT_CUBLASLT_GEMM)
  if (!std::is_same_v<T, Bf16>) return cublaslt_name();
  return fmt::format("{}, experts {}", cublaslt_name(), cublaslt_grouped_way());
#elif defined(PLEAT_ROCBLAS_GEMM)
  return "rocBLAS";
#else
  return "portable kernel";
#endif
}

template std::string product_library<float>();
template std::string product_library<double>();
template std::string product_library<Bf16>();

// In the order in which attention.cpp chooses.
std::string attention_library() {
#if defined(PLEAT_HOST_GEMM)
  return "tiles on the host";
#elif defined(PLEAT_CUDNN_ATTENTION)
  if (is_attention_by_products()) return "cuBLASLt (as PLEAT_ATTENTION says)";
  const std::string fused = attention_graph_library();
  return fused.empty() ? "cuBLASLt (cuDNN is not on this machine)"
                       : fused + ", else cuBLASLt";
#elif defined(PLEAT_CUBLASLT_GEMM)
  return "cuBLASLt (cuDNN is not compiled in)";
#else
  return "portable kernel";
#endif
}

std::string linked_libraries() {
  std::string names;
#if defined(PLEAT_CUBLASLT_GEMM)
  names += "cuBLASLt, ";
#endif
#if defined(PLEAT_ROCBLAS_GEMM)
  names += "rocBLAS, ";
#endif
#if defined(PLEAT_HAVE_BLAS)
  names += blas_name() + ", ";
#endif
#if defined(PLEAT_HAVE_ONEDNN)
  names += onednn_name() + ", ";
#endif
  return names.empty() ? "none" : names.substr(0, names.size() - 2);
}

}  // namespace pleat::kernels
