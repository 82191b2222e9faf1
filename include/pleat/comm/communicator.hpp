// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Collectives over a group of ranks.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include <mpi.h>

#include "pleat/base/types.hpp"

namespace pleat::comm {

enum class Reduction { kSum, kMax };
enum class Element { kByte, kInt32, kInt64, kFloat, kDouble };

/// \brief The element type of a collective.
template <class T>
constexpr Element element_of() {
  if constexpr (std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::byte>) {
    return Element::kByte;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return Element::kInt32;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return Element::kInt64;
  } else if constexpr (std::is_same_v<T, float>) {
    return Element::kFloat;
  } else {
    static_assert(std::is_same_v<T, double>, "no collective for this element type");
    return Element::kDouble;
  }
}

/// \brief A group of ranks. Every member function but rank() and size() is collective:
/// all members call it, in the same order.
///
/// Views on a device are fenced and staged through host memory; a back end that reads
/// device memory itself overrides nothing here but replaces the staging.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void barrier() = 0;

  /// \brief x_N = sum or maximum of every member's x_N, on every member.
  template <class View>
  void all_reduce(const View& x_N, Reduction reduction) {
    on_host(x_N, [&](auto host_N) {
      using T = typename View::non_const_value_type;
      reduce_host(host_N.data(), host_N.extent(0), element_of<T>(), reduction);
    });
  }

  /// \brief x_N = the root's x_N, on every member.
  template <class View>
  void broadcast(const View& x_N, int root) {
    on_host(x_N, [&](auto host_N) {
      using T = typename View::non_const_value_type;
      broadcast_host(host_N.data(), host_N.extent(0), element_of<T>(), root);
    });
  }

  /// \brief The sum or maximum of a single value.
  template <class T>
  T all_reduce_value(T value, Reduction reduction) {
    reduce_host(&value, 1, element_of<T>(), reduction);
    return value;
  }

 protected:
  virtual void reduce_host(void* data, std::size_t count, Element element,
                           Reduction reduction) = 0;
  virtual void broadcast_host(void* data, std::size_t count, Element element,
                              int root) = 0;

 private:
  template <class View, class Call>
  void on_host(const View& x_N, const Call& call) {
    static_assert(View::rank() == 1, "collectives take flat views");
    if (size() == 1) return;
    Kokkos::fence("pleat::comm: data ready");
    auto host_N = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), x_N);
    call(host_N);
    Kokkos::deep_copy(x_N, host_N);
  }
};

/// \brief The group of this rank alone; every collective leaves its argument as it is.
std::unique_ptr<Communicator> make_self_communicator();

/// \brief A group with the members and the order of `parent`, in a context of its own
/// that is freed with the object. Collective over `parent`.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent);

}  // namespace pleat::comm
