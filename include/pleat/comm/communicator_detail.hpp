// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The collectives on views, in terms of those on host memory. Included by
/// communicator.hpp alone.

#include <type_traits>
#include <vector>

#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "pleat/comm/communicator.hpp"

namespace pleat::comm {
namespace detail {

template <class View>
inline constexpr bool kOnHost =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace,
                               typename View::memory_space>::accessible;

template <class View>
constexpr Element element_of_view() {
  static_assert(View::rank == 1, "collectives take flat views");
  static_assert(!std::is_same_v<typename View::array_layout, Kokkos::LayoutStride>,
                "collectives take contiguous views");
  return element_of<typename View::non_const_value_type>();
}

/// The view itself, or memory of the same size where the host cannot reach it.
template <class View>
auto host_side(const View& x_N) {
  if constexpr (kOnHost<View>) {
    return x_N;
  } else {
    return HostView<typename View::non_const_value_type, 1>(
        Kokkos::view_alloc(Kokkos::WithoutInitializing, "pleat::comm::staging"),
        x_N.extent(0));
  }
}

/// Until the queued work has read and written host memory, where it can.
template <class View>
void wait_for_work_on() {
  if constexpr (pleat::detail::kIsOnDevice<View>) Kokkos::fence("pleat::comm");
}

/// The host side with the values of the view, once the queued work has written them.
template <class View>
auto fetch(const View& x_N) {
  const auto host_N = host_side(x_N);
  if constexpr (kOnHost<View>) {
    wait_for_work_on<View>();
  } else {
    copy_tensor(host_N, x_N);
  }
  return host_N;
}

/// The exchange, and then the values on the view.
template <class View, class Host>
Pending store_after(Pending exchange, const View& x_N, const Host& host_N) {
  if constexpr (kOnHost<View>) {
    return exchange;
  } else {
    const auto shared = std::make_shared<Pending>(std::move(exchange));
    return Pending([shared, x_N, host_N] {
      shared->wait();
      copy_tensor(x_N, host_N);
    });
  }
}

/// The exchange, which reads the host side of a View to the end.
template <class View, class Host>
Pending keep_until_done(Pending exchange, const Host& host_N) {
  if constexpr (kOnHost<View>) {
    return exchange;
  } else {
    const auto shared = std::make_shared<Pending>(std::move(exchange));
    return Pending([shared, host_N] { shared->wait(); },
                   [shared] { return shared->ready(); });
  }
}

/// What is left of an exchange in a group of one. Between device views the copy is only
/// queued, in the order of the work around it.
template <class In, class Out>
void copy_to_self(const In& in_N, const Out& out_N) {
  if (in_N.data() == out_N.data()) return;
  if constexpr (std::is_same_v<typename In::memory_space, MemSpace> &&
                std::is_same_v<typename Out::memory_space, MemSpace>) {
    copy_tensor(ExecSpace(), out_N, in_N);
  } else {
    copy_tensor(out_N, in_N);
  }
}

template <class View>
auto part_of(const View& x_M, std::int64_t first, std::size_t count) {
  const auto begin = static_cast<std::size_t>(first);
  return Kokkos::subview(x_M, Kokkos::make_pair(begin, begin + count));
}

}  // namespace detail

template <class View>
Pending Communicator::start_all_reduce(const View& x_N, Reduction reduction) {
  constexpr Element element = detail::element_of_view<View>();
  static_assert(element != Element::kBf16, "sums in bf16 are formed by reduce_scatter");
  if (size_ == 1) return {};
  if (is_direct<View>())
    return reduce_through(Memory::kDevice, x_N.data(), x_N.extent(0), element, reduction);
  const auto host_N = detail::fetch(x_N);
  return detail::store_after(
      reduce_through(Memory::kHost, host_N.data(), host_N.extent(0), element, reduction),
      x_N, host_N);
}

template <class View>
void Communicator::broadcast(const View& x_N, int root) {
  constexpr Element element = detail::element_of_view<View>();
  if (size_ == 1) return;
  if (is_direct<View>())
    return broadcast_through(Memory::kDevice, x_N.data(), x_N.extent(0), element, root)
        .wait();
  const auto host_N = detail::fetch(x_N);
  detail::store_after(
      broadcast_through(Memory::kHost, host_N.data(), host_N.extent(0), element, root),
      x_N, host_N)
      .wait();
}

template <class In, class Out>
Pending Communicator::start_all_gather(const In& in_N, const Out& out_PN) {
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(size_),
                                         static_cast<std::int64_t>(in_N.extent(0)));
  return gather_views(in_N, out_PN, counts);
}

template <class In, class Out>
void Communicator::all_gather_v(const In& in_N, const Out& out_M, Counts counts) {
  gather_views(in_N, out_M, counts).wait();
}

template <class In, class Out>
Pending Communicator::gather_views(const In& in_N, const Out& out_M, Counts counts) {
  constexpr Element element = detail::element_of_view<Out>();
  static_assert(element == detail::element_of_view<In>());
  const std::int64_t first = checked_offset(counts, in_N.extent(0), out_M.extent(0));
  if (size_ == 1) {
    detail::copy_to_self(in_N, out_M);
    return {};
  }
  if (is_direct<In, Out>()) {
    detail::copy_to_self(in_N, detail::part_of(out_M, first, in_N.extent(0)));
    return gather_through(Memory::kDevice, out_M.data(), counts, element);
  }
  const auto host_M = detail::host_side(out_M);
  copy_tensor(detail::part_of(host_M, first, in_N.extent(0)), in_N);
  return detail::store_after(
      gather_through(Memory::kHost, host_M.data(), counts, element), out_M, host_M);
}

template <class In, class Out>
Pending Communicator::start_reduce_scatter(const In& in_PN, const Out& out_N) {
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(size_),
                                         static_cast<std::int64_t>(out_N.extent(0)));
  return scatter_views(in_PN, out_N, counts);
}

template <class In, class Out>
void Communicator::reduce_scatter_v(const In& in_M, const Out& out_N, Counts counts) {
  scatter_views(in_M, out_N, counts).wait();
}

template <class In, class Out>
Pending Communicator::scatter_views(const In& in_M, const Out& out_N, Counts counts) {
  constexpr Element element = detail::element_of_view<Out>();
  static_assert(element == detail::element_of_view<In>());
  checked_offset(counts, out_N.extent(0), in_M.extent(0));
  if (size_ == 1) {
    detail::copy_to_self(in_M, out_N);
    return {};
  }
  if (is_direct<In, Out>())
    return scatter_through(Memory::kDevice, in_M.data(), out_N.data(), counts, element);
  const auto host_M = detail::fetch(in_M);
  const auto host_N = detail::host_side(out_N);
  Pending exchange =
      scatter_through(Memory::kHost, host_M.data(), host_N.data(), counts, element);
  return detail::store_after(detail::keep_until_done<In>(std::move(exchange), host_M),
                             out_N, host_N);
}

template <class In, class Out>
Pending Communicator::start_all_to_all_v(const In& in_M, Counts send_counts,
                                         const Out& out_R, Counts recv_counts) {
  constexpr Element element = detail::element_of_view<Out>();
  static_assert(element == detail::element_of_view<In>());
  check_total(send_counts, in_M.extent(0));
  check_total(recv_counts, out_R.extent(0));
  if (size_ == 1) {
    PLEAT_ASSERT(send_counts[0] == recv_counts[0], "{} elements for {}", send_counts[0],
                 recv_counts[0]);
    detail::copy_to_self(in_M, out_R);
    return {};
  }
  if (is_direct<In, Out>())
    return exchange_through(Memory::kDevice, in_M.data(), send_counts, out_R.data(),
                            recv_counts, element);
  const auto host_M = detail::fetch(in_M);
  const auto host_R = detail::host_side(out_R);
  Pending exchange = exchange_through(Memory::kHost, host_M.data(), send_counts,
                                      host_R.data(), recv_counts, element);
  return detail::store_after(detail::keep_until_done<In>(std::move(exchange), host_M),
                             out_R, host_R);
}

template <class View>
Pending Communicator::send(const View& x_N, int to, int tag) {
  constexpr Element element = detail::element_of_view<View>();
  if (is_direct<View>())
    return send_through(Memory::kDevice, x_N.data(), x_N.extent(0), element, to, tag);
  const auto host_N = detail::fetch(x_N);
  return detail::keep_until_done<View>(
      send_through(Memory::kHost, host_N.data(), host_N.extent(0), element, to, tag),
      host_N);
}

template <class View>
Pending Communicator::receive(const View& x_N, int from, int tag) {
  constexpr Element element = detail::element_of_view<View>();
  if (is_direct<View>())
    return receive_through(Memory::kDevice, x_N.data(), x_N.extent(0), element, from,
                           tag);
  detail::wait_for_work_on<View>();  // it may still read the old values
  const auto host_N = detail::host_side(x_N);
  return detail::store_after(
      receive_through(Memory::kHost, host_N.data(), host_N.extent(0), element, from, tag),
      x_N, host_N);
}

}  // namespace pleat::comm
