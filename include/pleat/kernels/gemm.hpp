// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Matrix products, dense and grouped by expert.
///
/// Legend: M, N, K matrix extents; E groups (experts); R rows of all groups together.

#include <cstdint>
#include <span>

#include "pleat/base/types.hpp"

namespace pleat::kernels {

enum class Transpose { kNo, kYes };

/// \brief c_MN = alpha op(a) op(b) + beta c_MN. Row-major, rows contiguous; beta = 0 does not
/// read c. Any extent may be 0. Sums are formed in the accumulator of T; where C is narrower,
/// they are rounded once, at the end.
template <class T, class C = T>
void gemm(const ExecSpace& exec, Transpose transpose_a, Transpose transpose_b,
          Accumulator<T> alpha, const DeviceView<const T, 2>& a, const DeviceView<const T, 2>& b,
          Accumulator<T> beta, const DeviceView<C, 2>& c_MN);

/// \brief The rows of each group: group e owns rows [host[e], host[e + 1]) of R. The device
/// copy holds the same E + 1 numbers. A group may be empty.
struct GroupOffsets {
  std::span<const std::int64_t> host;
  DeviceView<const std::int64_t, 1> device;
  std::int64_t groups() const { return static_cast<std::int64_t>(host.size()) - 1; }
};

/// \brief For each group e: c_RN[rows of e] = alpha a_RK[rows of e] op(b[e]) + beta c.
/// b is [E, N, K] with kYes (a weight [out, in], forward), [E, K, N] with kNo (backward).
template <class T>
void grouped_gemm_rows(const ExecSpace& exec, Transpose transpose_b, Accumulator<T> alpha,
                       const DeviceView<const T, 2>& a_RK, const DeviceView<const T, 3>& b,
                       Accumulator<T> beta, const DeviceView<T, 2>& c_RN,
                       const GroupOffsets& offsets);

/// \brief For each group e: c_EMN[e] = alpha a_RM[rows of e]^T b_RN[rows of e] + beta c_EMN[e]
/// (the gradient of a weight; an empty group scales c by beta).
template <class T>
void grouped_gemm_weights(const ExecSpace& exec, Accumulator<T> alpha,
                          const DeviceView<const T, 2>& a_RM, const DeviceView<const T, 2>& b_RN,
                          Accumulator<T> beta, const DeviceView<Gradient<T>, 3>& c_EMN,
                          const GroupOffsets& offsets);

}  // namespace pleat::kernels
