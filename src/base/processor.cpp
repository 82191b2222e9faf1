// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/processor.hpp"

#include <fstream>

#include <unistd.h>

#include "pleat/base/error.hpp"
#include "pleat/base/types.hpp"

namespace pleat {

#if defined(KOKKOS_ENABLE_CUDA)

Processor this_processor() {
  const cudaDeviceProp& device = ExecSpace().cuda_device_prop();
  return {device.name, static_cast<std::int64_t>(device.totalGlobalMem)};
}

#elif defined(KOKKOS_ENABLE_HIP)

Processor this_processor() {
  const hipDeviceProp_t& device = ExecSpace().hip_device_prop();
  return {device.name, static_cast<std::int64_t>(device.totalGlobalMem)};
}

#else

namespace {

/// The text behind "model name : " of the first core, where the system tells it.
std::string model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

Processor this_processor() {
  return {model_name(),
          static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE)};
}

#endif

namespace {

#if defined(__AVX__)
constexpr bool kUsesAvx = true;
#else
constexpr bool kUsesAvx = false;
#endif
#if defined(__AVX2__)
constexpr bool kUsesAvx2 = true;
#else
constexpr bool kUsesAvx2 = false;
#endif
#if defined(__FMA__)
constexpr bool kUsesFma = true;
#else
constexpr bool kUsesFma = false;
#endif
#if defined(__AVX512F__)
constexpr bool kUsesAvx512 = true;
#else
constexpr bool kUsesAvx512 = false;
#endif
#if defined(__AVX512BF16__)
constexpr bool kUsesAvx512Bf16 = true;
#else
constexpr bool kUsesAvx512Bf16 = false;
#endif

}  // namespace

std::span<const InstructionSet> instruction_sets() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const InstructionSet sets[] = {
      {"AVX", kUsesAvx, __builtin_cpu_supports("avx") != 0},
      {"AVX2", kUsesAvx2, __builtin_cpu_supports("avx2") != 0},
      {"FMA", kUsesFma, __builtin_cpu_supports("fma") != 0},
      {"AVX-512", kUsesAvx512, __builtin_cpu_supports("avx512f") != 0},
      {"AVX-512 BF16", kUsesAvx512Bf16, __builtin_cpu_supports("avx512bf16") != 0}};
  return sets;
#else
  return {};
#endif
}

void require_instructions(std::span<const InstructionSet> sets) {
  std::string missing;
  for (const InstructionSet& set : sets) {
    if (!set.used || set.present) continue;
    missing += missing.empty() ? "" : ", ";
    missing += set.name;
  }
  PLEAT_REQUIRE(missing.empty(), InputError, "PL0107",
                "this program was built for a machine with {}, which this one lacks\n"
                "HINT: build it on this kind of machine, or anywhere with "
                "-DPLEAT_NATIVE=OFF.",
                missing);
}

}  // namespace pleat
