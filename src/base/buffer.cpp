// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/buffer.hpp"

#include <cstdint>
#include <type_traits>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace pleat {
namespace {

[[maybe_unused]] constexpr bool kOnHost =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, ExecSpace::memory_space>::accessible;

#ifdef __linux__
/// Advice on the whole pages inside a buffer; the system refuses addresses that are not aligned.
[[maybe_unused]] void advise(void* memory, std::size_t bytes, std::uintptr_t page,
                             int advice) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t end = (begin + bytes) / page * page;
  if (end > first) madvise(reinterpret_cast<void*>(first), end - first, advice);
}
#endif

}  // namespace

void advise_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if constexpr (kOnHost) advise(memory, bytes, std::uintptr_t{2} << 20, MADV_HUGEPAGE);
#endif
}

void release_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef __linux__
  if constexpr (kOnHost) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    advise(memory, bytes, page, MADV_DONTNEED);
  }
#endif
}

void return_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace pleat
