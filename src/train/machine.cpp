// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/machine.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "pleat/base/commit.hpp"
#include "pleat/base/copy.hpp"
#include "pleat/kernels/gemm.hpp"

namespace pleat::train {

std::string build_description() {
  return fmt::format("pleat {} ({}), {} {}, Kokkos {}.{}.{} ({})", PLEAT_VERSION,
                     build_commit(),
#if defined(__clang__)
                     "clang", __clang_version__,
#else
                     "gcc", __VERSION__,
#endif
                     KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100, KOKKOS_VERSION % 100,
                     ExecSpace::name());
}

std::string describe_machine(int ranks) {
  return fmt::format("{}; {} rank{}, {} threads each", build_description(), ranks,
                     ranks == 1 ? "" : "s", ExecSpace().concurrency());
}

std::string describe_grid(const comm::GridShape& shape) {
  using comm::Axis;
  const auto degree = [&](Axis axis) { return shape.degree(axis); };
  return fmt::format("pp={0} dp={1} cp={2} tp={3} / pp={0} edp={4} ep={5} etp={6}",
                     degree(Axis::kPipeline), degree(Axis::kData), degree(Axis::kContext),
                     degree(Axis::kTensor), degree(Axis::kExpertData), degree(Axis::kExpert),
                     degree(Axis::kExpertTensor));
}

template <class T>
double measure_gemm_rate(const ExecSpace& exec) {
  using kernels::Transpose;
  constexpr int kSize = 768;
  constexpr int kRepeats = 4;
  const DeviceView<T, 2> a("pleat::train::gemm_rate_a", kSize, kSize);
  const DeviceView<T, 2> b("pleat::train::gemm_rate_b", kSize, kSize);
  const DeviceView<T, 2> c("pleat::train::gemm_rate_c", kSize, kSize);
  fill_tensor(exec, a, T(1));
  fill_tensor(exec, b, T(1));
  double best = 0.0;
  for (int i = 0; i < kRepeats; ++i) {
    exec.fence("pleat::train: before GEMM");
    const auto start = std::chrono::steady_clock::now();
    kernels::gemm<T>(exec, Transpose::kNo, Transpose::kYes, 1, a, b, 0, c);
    exec.fence("pleat::train: after GEMM");
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2.0 * kSize * kSize * kSize / elapsed.count());
  }
  return best;
}

template double measure_gemm_rate<float>(const ExecSpace&);
template double measure_gemm_rate<double>(const ExecSpace&);
template double measure_gemm_rate<Bf16>(const ExecSpace&);

}  // namespace pleat::train
