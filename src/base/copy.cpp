// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/copy.hpp"

#include <cstring>

namespace pleat::detail {
namespace {

template <class Byte, class Space>
using Bytes = Kokkos::View<Byte*, Kokkos::LayoutRight, Space, Kokkos::MemoryUnmanaged>;

template <class To, class From>
void copy_bytes(const ExecSpace& exec, void* to, const void* from, std::size_t bytes) {
  Kokkos::deep_copy(exec, Bytes<unsigned char, To>(static_cast<unsigned char*>(to), bytes),
                    Bytes<const unsigned char, From>(
                        static_cast<const unsigned char*>(from), bytes));
}

}  // namespace

void copy_on_device(const ExecSpace& exec, void* to, const void* from, std::size_t bytes) {
  copy_bytes<MemSpace, MemSpace>(exec, to, from, bytes);
}

void copy_to_device(const ExecSpace& exec, void* to, const void* from, std::size_t bytes) {
  copy_bytes<MemSpace, Kokkos::HostSpace>(exec, to, from, bytes);
}

void copy_to_host(const ExecSpace& exec, void* to, const void* from, std::size_t bytes) {
  copy_bytes<Kokkos::HostSpace, MemSpace>(exec, to, from, bytes);
}

void copy_on_host(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

}  // namespace pleat::detail
