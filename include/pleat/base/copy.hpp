// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Copies and fills of whole tensors.
///
/// Kokkos::deep_copy makes kernels for each pair of types and ranks, also where there are only
/// bytes to move, and to compile them for a GPU took longer than all else in the modules that
/// copy. Here bytes are moved and rows of numbers filled, which takes a handful of kernels.

#include <cstddef>
#include <type_traits>

#include "pleat/base/error.hpp"
#include "pleat/base/types.hpp"

namespace pleat {
namespace detail {

template <class View>
inline constexpr bool kIsOnDevice =
    Kokkos::SpaceAccessibility<ExecSpace, typename View::memory_space>::accessible;

void copy_on_device(const ExecSpace& exec, void* to, const void* from, std::size_t bytes);
void copy_to_device(const ExecSpace& exec, void* to, const void* from, std::size_t bytes);
void copy_to_host(const ExecSpace& exec, void* to, const void* from, std::size_t bytes);
void copy_on_host(void* to, const void* from, std::size_t bytes);

template <class To, class From>
void require_alike(const To& to, const From& from) {
  static_assert(std::is_same_v<typename To::value_type, typename From::non_const_value_type> &&
                static_cast<int>(To::rank()) == static_cast<int>(From::rank()));
  PLEAT_ASSERT(to.span_is_contiguous() && from.span_is_contiguous(), "a copy of parts of rows");
  for (int d = 0; d < static_cast<int>(To::rank()); ++d) {
    PLEAT_ASSERT(to.extent(d) == from.extent(d), "a copy of {} to {} in dimension {}",
                 from.extent(d), to.extent(d), d);
  }
}

}  // namespace detail

/// \brief `to` = `from`: tensors without gaps, of the same extents, on the device or the host.
/// Queued: until `exec` has come to it, host memory of a GPU's copy must live and stay as it is.
template <class To, class From>
void copy_tensor(const ExecSpace& exec, const To& to, const From& from) {
  detail::require_alike(to, from);
  const std::size_t bytes = to.size() * sizeof(typename To::value_type);
  if constexpr (detail::kIsOnDevice<To> && detail::kIsOnDevice<From>) {
    detail::copy_on_device(exec, to.data(), from.data(), bytes);
  } else if constexpr (detail::kIsOnDevice<To>) {
    detail::copy_to_device(exec, to.data(), from.data(), bytes);
  } else if constexpr (detail::kIsOnDevice<From>) {
    detail::copy_to_host(exec, to.data(), from.data(), bytes);
  } else {
    detail::copy_on_host(to.data(), from.data(), bytes);
  }
}

/// \brief The same after all that is queued anywhere; done when the call returns. Between two
/// places that the device does not reach nothing is waited for.
template <class To, class From>
void copy_tensor(const To& to, const From& from) {
  const ExecSpace exec;
  constexpr bool kDevice = detail::kIsOnDevice<To> || detail::kIsOnDevice<From>;
  if constexpr (kDevice) Kokkos::fence("pleat::copy_tensor: before");
  copy_tensor(exec, to, from);
  if constexpr (kDevice) exec.fence("pleat::copy_tensor: after");
}

/// \brief Every element of a tensor without gaps on the device = `value`. Queued.
template <class View>
void fill_tensor(const ExecSpace& exec, const View& to, typename View::value_type value) {
  static_assert(detail::kIsOnDevice<View>);
  PLEAT_ASSERT(to.span_is_contiguous(), "a fill of parts of rows");
  Kokkos::deep_copy(exec, DeviceView<typename View::value_type, 1>(to.data(), to.size()), value);
}

/// \brief The same after all that is queued anywhere; done when the call returns.
template <class View>
void fill_tensor(const View& to, typename View::value_type value) {
  Kokkos::fence("pleat::fill_tensor: before");
  const ExecSpace exec;
  fill_tensor(exec, to, value);
  exec.fence("pleat::fill_tensor: after");
}

/// \brief Host memory for a tensor like `view`: where the device is the host, its own.
template <class View>
auto host_mirror(const View& view) {
  if constexpr (std::is_same_v<typename View::memory_space, Kokkos::HostSpace>) {
    return view;
  } else {
    using T = typename View::non_const_value_type;
    using Host = HostView<T, static_cast<int>(View::rank())>;
    return Host(Kokkos::view_alloc(Kokkos::WithoutInitializing, view.label()), view.layout());
  }
}

/// \brief The same in memory that a GPU copies from and to without that the host waits.
template <class T, int N>
StagingView<T, N> staging_mirror(const DeviceView<T, N>& view) {
  if constexpr (std::is_same_v<MemSpace, Kokkos::SharedHostPinnedSpace>) {
    return view;
  } else {
    return StagingView<T, N>(Kokkos::view_alloc(Kokkos::WithoutInitializing, view.label()),
                             view.layout());
  }
}

/// \brief A tensor as the host sees it, after all that is queued anywhere: a copy, or, where the
/// device is the host, itself.
template <class View>
auto host_copy(const View& view) {
  if constexpr (std::is_same_v<typename View::memory_space, Kokkos::HostSpace>) {
    Kokkos::fence("pleat::host_copy");
    return view;
  } else {
    const auto host = host_mirror(view);
    copy_tensor(host, view);
    return host;
  }
}

}  // namespace pleat
