// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Makes one rank of a training run fail in a phase that a test names. A Kokkos
/// tool (KOKKOS_TOOLS_LIBS) that is told where each phase begins, and preloaded
/// (LD_PRELOAD) as well, so that it stands before the C library's allocation. The program
/// knows nothing of it.
///
///     PLEAT_TEST_RANK=N        the rank that fails
///     PLEAT_TEST_PHASE=NAME    the phase, as metrics.csv names it
///     PLEAT_TEST_ENTRY=N       when it begins for the N-th time, counted from 1
///     PLEAT_TEST_FAILURE=      exception  thrown where the phase begins
///                              large      from then on blocks of 4 KiB and more are
///                              refused any        from then on all memory is refused
///                              segmentation, kill, exit

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include <dlfcn.h>
#include <unistd.h>

namespace {

constexpr std::size_t kLarge = 4096;
constexpr std::size_t kNothingIsRefused = ~std::size_t{0};

/// Blocks of this size and larger are refused.
std::atomic<std::size_t> refused{kNothingIsRefused};

bool is_refused(std::size_t bytes) {
  if (bytes < refused.load(std::memory_order_relaxed)) return false;
  errno = ENOMEM;
  return true;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

const char* setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The number that the launcher gave this rank; 0 without a launcher.
int own_rank() {
  const char* rank = setting("PMI_RANK");
  return std::atoi(*rank != '\0' ? rank : setting("OMPI_COMM_WORLD_RANK"));
}

void fail(const char* how) {
  const std::string failure = how;
  if (failure == "exception") throw std::runtime_error("a failure made by a test");
  if (failure == "segmentation") std::raise(SIGSEGV);
  if (failure == "kill") std::raise(SIGKILL);
  if (failure == "exit") _exit(7);
  if (failure == "large") refused = kLarge;
  if (failure == "any") refused = 0;
}

}  // namespace

extern "C" {

void kokkosp_push_profile_region(const char* name) {
  static int entries = 0;
  if (std::strcmp(name, setting("PLEAT_TEST_PHASE")) != 0) return;
  if (own_rank() != std::atoi(setting("PLEAT_TEST_RANK"))) return;
  if (++entries == std::atoi(setting("PLEAT_TEST_ENTRY"))) {
    fail(setting("PLEAT_TEST_FAILURE"));
  }
}

void* malloc(std::size_t bytes) {
  static const auto real = next<void* (*)(std::size_t)>("malloc");
  return is_refused(bytes) ? nullptr : real(bytes);
}

void* realloc(void* block, std::size_t bytes) {
  static const auto real = next<void* (*)(void*, std::size_t)>("realloc");
  return is_refused(bytes) ? nullptr : real(block, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  static const auto real = next<void* (*)(std::size_t, std::size_t)>("aligned_alloc");
  return is_refused(bytes) ? nullptr : real(alignment, bytes);
}

int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  static const auto real =
      next<int (*)(void**, std::size_t, std::size_t)>("posix_memalign");
  return is_refused(bytes) ? ENOMEM : real(block, alignment, bytes);
}

}  // extern "C"
