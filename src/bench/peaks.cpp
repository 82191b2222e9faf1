// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "pleat/bench/rates.hpp"
#include "pleat/kernels/gemm.hpp"
#include "pleat/kernels/peak.hpp"
#include "precision_name.hpp"
#include "timing.hpp"

namespace pleat::bench {
namespace {

/// FLOP/s of a product of square matrices.
template <class T>
double square_product_rate(const ExecSpace& exec, comm::Communicator& ranks, int size,
                           double budget) {
  using kernels::Transpose;
  const DeviceView<T, 2> a("pleat::bench::a", size, size);
  const DeviceView<T, 2> b("pleat::bench::b", size, size);
  const DeviceView<T, 2> c("pleat::bench::c", size, size);
  Kokkos::deep_copy(exec, a, T(1));
  Kokkos::deep_copy(exec, b, T(1));
  const double seconds = best_seconds(exec, ranks, budget, [&] {
    kernels::gemm<T>(exec, Transpose::kNo, Transpose::kYes, 1, a, b, 0, c);
  });
  return 2.0 * size * size * size / seconds;
}

template <class T>
double multiply_add_rate(const ExecSpace& exec, comm::Communicator& ranks,
                         double budget) {
  const auto threads = static_cast<std::size_t>(kernels::multiply_add_threads(exec));
  const DeviceView<T, 1> sums_N("pleat::bench::sums", threads);
  constexpr std::int64_t kRounds = 1 << 18;
  double operations = 0.0;
  const double seconds = best_seconds(exec, ranks, budget, [&] {
    operations = kernels::multiply_add_loop<T>(exec, kRounds, sums_N);
  });
  return operations / seconds;
}

template <class T>
Peak product_peak(const ExecSpace& exec, comm::Communicator& ranks, double budget) {
  double best = 0.0;
  // Small ones fill a CPU; a GPU wants large ones, for which a CPU would take too long.
  for (const int size : {768, 2048, 8192}) {
    const double expected = 2.0 * size * size * size / best;
    if (best > 0.0 && expected > budget) break;
    best = std::max(best, square_product_rate<T>(exec, ranks, size, budget));
  }
  if constexpr (std::is_same_v<T, Accumulator<T>>) {
    best = std::max(best, multiply_add_rate<T>(exec, ranks, budget));
  }
  return {precision_name<T>(), best, "FLOP/s"};
}

Peak memory_peak(const ExecSpace& exec, comm::Communicator& ranks, double budget) {
  constexpr std::size_t kElements = std::size_t{8} << 20;  // 64 MiB, three times
  constexpr double kBytes = static_cast<double>(kElements * sizeof(double));
  const DeviceView<double, 1> a_N("pleat::bench::a", kElements);
  const DeviceView<double, 1> b_N("pleat::bench::b", kElements);
  const DeviceView<double, 1> c_N("pleat::bench::c", kElements);
  const double copy =
      best_seconds(exec, ranks, budget, [&] { Kokkos::deep_copy(exec, a_N, b_N); });
  const double triad = best_seconds(
      exec, ranks, budget, [&] { kernels::triad<double>(exec, 0.5, b_N, c_N, a_N); });
  // Many CPUs read what is to be written first, but for what was read anyhow.
  const double in_place = best_seconds(
      exec, ranks, budget, [&] { kernels::triad<double>(exec, 0.5, b_N, a_N, a_N); });
  const double best =
      std::max(2.0 * kBytes / copy, 3.0 * kBytes / std::min(triad, in_place));
  return {"memory", best, "B/s"};
}

}  // namespace

double peak_of(const std::vector<Peak>& peaks, const std::string& name) {
  const auto found = std::find_if(peaks.begin(), peaks.end(),
                                  [&](const Peak& peak) { return peak.name == name; });
  return found == peaks.end() ? 0.0 : found->rate;
}

std::vector<Peak> measure_peaks(comm::Communicator& ranks, double seconds) {
  const ExecSpace exec;
  constexpr double kMeasurements = 14.0;
  const double budget = seconds / kMeasurements;
  return {product_peak<double>(exec, ranks, budget),
          product_peak<float>(exec, ranks, budget),
          product_peak<Bf16>(exec, ranks, budget), memory_peak(exec, ranks, budget)};
}

}  // namespace pleat::bench
