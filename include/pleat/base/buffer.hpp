// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Large flat buffers.

#include <cstddef>
#include <string>

#include "pleat/base/copy.hpp"
#include "pleat/base/types.hpp"

namespace pleat {

/// \brief Asks the system for huge pages where the memory lies on a host that offers them on
/// request: fewer misses in the page tables while operands are packed. Never fails. To be
/// called before the memory is first touched.
void advise_huge_pages(void* memory, std::size_t bytes);

/// \brief Gives memory that was freed back to the system, where the C library keeps it.
void return_freed_memory();

/// \brief Gives the whole pages inside this memory back to the system, on a host that can take
/// them; what they hold is lost, and they come back when they are touched. Never fails.
void release_pages(void* memory, std::size_t bytes);

/// \brief A zero-filled buffer in the memory of the device.
template <class T>
DeviceView<T, 1> make_buffer(const std::string& label, std::size_t size) {
  const DeviceView<T, 1> buffer(Kokkos::view_alloc(Kokkos::WithoutInitializing, label), size);
  advise_huge_pages(buffer.data(), size * sizeof(T));
  fill_tensor(buffer, T(0));
  return buffer;
}

}  // namespace pleat
