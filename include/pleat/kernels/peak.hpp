// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Loops that do nothing but what bounds the others: multiply-adds in registers,
/// and reading and writing memory.
///
/// Legend: N elements.

#include <cstdint>

#include "pleat/base/types.hpp"

namespace pleat::kernels {

/// \brief `rounds` times a chain of multiply-adds in every thread of the execution space.
/// \param sums_N  at least multiply_add_threads() elements; gets sums that depend on
/// every
///   operation, so that none can be left out
/// \return how many floating-point operations that were, a multiply-add counting as two
template <class T>
double multiply_add_loop(const ExecSpace& exec, std::int64_t rounds,
                         const DeviceView<T, 1>& sums_N);

/// \brief Threads that multiply_add_loop() runs.
std::int64_t multiply_add_threads(const ExecSpace& exec);

/// \brief a_N = b_N + factor c_N (McCalpin's triad): three elements moved for each.
/// a_N may be c_N.
template <class T>
void triad(const ExecSpace& exec, T factor, const DeviceView<const T, 1>& b_N,
           const DeviceView<const T, 1>& c_N, const DeviceView<T, 1>& a_N);

}  // namespace pleat::kernels
