// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/processor.hpp"

#include <fstream>

#include <unistd.h>

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

}  // namespace pleat
