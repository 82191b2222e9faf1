// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Products by oneDNN, for CPUs with instructions for bf16 (avx512_bf16, AMX).

#include <type_traits>

#include "gemm_host.hpp"

#if defined(PLEAT_HOST_GEMM) && defined(PLEAT_HAVE_ONEDNN)
#define PLEAT_ONEDNN_GEMM
#endif

namespace pleat::kernels {

#if defined(PLEAT_ONEDNN_GEMM)
/// \brief Whether this CPU multiplies in bf16 and the library knows how.
bool has_fast_bf16();

/// \brief Whether the library's products in bf16 are quicker than Pleat's own: with AMX, or
/// where the compiler could not use the CPU's instructions for bf16 (gemm_packed.hpp).
bool is_onednn_quickest();

/// \brief The product on the calling thread when it is inside a parallel region; m, n and
/// k are positive. \return false where the library cannot: nothing was done then
template <class T, class C>
bool onednn_gemm(const HostProduct<T, T, C>& product);
#endif

/// \brief Hands a product to oneDNN where that pays. \return whether it was computed
template <class A, class B, class C>
bool try_onednn([[maybe_unused]] const HostProduct<A, B, C>& product) {
#if defined(PLEAT_ONEDNN_GEMM)
  if constexpr (std::is_same_v<A, Bf16> && std::is_same_v<B, Bf16>) {
    return is_onednn_quickest() && onednn_gemm(product);
  }
#endif
  return false;
}

}  // namespace pleat::kernels
