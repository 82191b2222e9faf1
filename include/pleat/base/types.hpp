// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The view aliases that every module uses.
///
/// All views are row-major (LayoutRight), so host, file, MPI and PyTorch see one order.
/// A view made from a bare pointer does not own its memory; that is how tensors that live
/// in an arena or in a flat parameter buffer are handed around.

#include <cstdint>

#include <Kokkos_Core.hpp>

#include "pleat/base/bf16.hpp"

namespace pleat {

using ExecSpace = Kokkos::DefaultExecutionSpace;
using MemSpace = ExecSpace::memory_space;

namespace detail {
template <class T, int N>
struct AddPointers {
  using type = typename AddPointers<T, N - 1>::type*;
};
template <class T>
struct AddPointers<T, 0> {
  using type = T;
};
}  // namespace detail

/// \brief A tensor of rank N in the memory of the execution space.
template <class T, int N>
using DeviceView =
    Kokkos::View<typename detail::AddPointers<T, N>::type, Kokkos::LayoutRight, MemSpace>;

/// \brief A tensor of rank N in host memory.
template <class T, int N>
using HostView = Kokkos::View<typename detail::AddPointers<T, N>::type, Kokkos::LayoutRight,
                              Kokkos::HostSpace>;

/// \brief A tensor of rank N in host memory from and to which a GPU copies without that the host
/// waits (pinned); in builds for hosts plain host memory.
template <class T, int N>
using StagingView = Kokkos::View<typename detail::AddPointers<T, N>::type, Kokkos::LayoutRight,
                                 Kokkos::SharedHostPinnedSpace>;

/// \brief The type in which sums over T are formed: at least fp32, never narrower than T.
template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <class T>
using Accumulator = typename AccumulatorOf<T>::type;

/// \brief The type of the gradients of weights of type T, which micro-batches and ranks add to.
template <class T>
using Gradient = Accumulator<T>;

/// \brief The type in which the optimizer keeps weights that the model reads as T.
template <class T>
using Master = Accumulator<T>;

}  // namespace pleat
