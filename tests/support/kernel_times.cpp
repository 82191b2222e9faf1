// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A Kokkos tool: seconds of each kernel, as JSON in $PLEAT_KERNEL_TIMES.
///
///     KOKKOS_TOOLS_LIBS=libpleat_kernel_times.so PLEAT_KERNEL_TIMES=times.json pleat
///     train ...
///
/// Kokkos waits for the device before it calls a tool, so times are those of the kernels,
/// not of their launches, and the phases of metrics.csv are too. Matrix products come
/// from libraries, which Kokkos does not see; they are regions whose name ends with "
/// flop=N". What happens outside of regions, which are the phases of steps, is left out,
/// and so is each kernel's first call, which loads it.

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Times {
  std::int64_t calls = 0;  ///< with the first one
  double seconds = 0.0;
  double flop = 0.0;
};

struct Region {
  std::string name;  ///< empty: none that counts
  double flop = 0.0;
  Clock::time_point start;
};

std::map<std::string, Times> times;
std::vector<Region> regions;
std::string kernel;
Clock::time_point kernel_start;
Clock::time_point last_written;

void add(const std::string& name, double flop, Clock::time_point start) {
  const std::chrono::duration<double> elapsed = Clock::now() - start;
  Times& sum = times[name];
  if (sum.calls++ == 0) return;
  sum.seconds += elapsed.count();
  sum.flop += flop;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c < ' ' ? ' ' : c;
  }
  return result + "\"";
}

/// The file is always whole, also when the program is killed.
void write_times() {
  last_written = Clock::now();
  const char* const place = std::getenv("PLEAT_KERNEL_TIMES");
  if (place == nullptr) return;
  const std::string path = place;
  std::FILE* const file = std::fopen((path + ".tmp").c_str(), "w");
  if (file == nullptr) {
    std::fprintf(stderr, "WARNING: PLEAT_KERNEL_TIMES: %s cannot be written: %s\n", path.c_str(),
                 std::strerror(errno));
    unsetenv("PLEAT_KERNEL_TIMES");  // once is enough
    return;
  }
  const char* separator = "";
  std::fprintf(file, "[");
  for (const auto& [name, sum] : times) {
    std::fprintf(file,
                 "%s\n{\"name\": %s, \"calls\": %lld, \"seconds\": %.6g, \"flop\": %.6g}",
                 separator, quoted(name).c_str(), static_cast<long long>(sum.calls - 1),
                 sum.seconds, sum.flop);
    separator = ",";
  }
  std::fprintf(file, "\n]\n");
  std::fclose(file);
  std::rename((path + ".tmp").c_str(), path.c_str());
}

void end_kernel() {
  if (!regions.empty()) add(kernel, 0.0, kernel_start);
}

void begin_kernel(const char* name) {
  kernel = name;
  kernel_start = Clock::now();
}

}  // namespace

extern "C" {

void kokkosp_begin_parallel_for(const char* name, std::uint32_t, std::uint64_t*) {
  begin_kernel(name);
}
void kokkosp_begin_parallel_reduce(const char* name, std::uint32_t, std::uint64_t*) {
  begin_kernel(name);
}
void kokkosp_begin_parallel_scan(const char* name, std::uint32_t, std::uint64_t*) {
  begin_kernel(name);
}
void kokkosp_end_parallel_for(std::uint64_t) { end_kernel(); }
void kokkosp_end_parallel_reduce(std::uint64_t) { end_kernel(); }
void kokkosp_end_parallel_scan(std::uint64_t) { end_kernel(); }

void kokkosp_push_profile_region(const char* text) {
  const std::string name = text;
  const auto flop = name.rfind(" flop=");
  Region region;
  if (flop != std::string::npos) {
    region.name = name.substr(0, flop);
    region.flop = std::strtod(name.c_str() + flop + 6, nullptr);
  }
  region.start = Clock::now();
  regions.push_back(region);
}

void kokkosp_pop_profile_region() {
  if (regions.empty()) return;
  const Region region = regions.back();
  regions.pop_back();
  if (!region.name.empty()) add(region.name, region.flop, region.start);
  if (regions.empty() && Clock::now() - last_written > std::chrono::milliseconds(200))
    write_times();
}

void kokkosp_finalize_library() { write_times(); }

}  // extern "C"
