// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/peak.hpp"

#include "gemm_packed.hpp"
#include "rows.hpp"

namespace pleat::kernels {
namespace {

using detail::check_extents;
using detail::Index;

// Independent chains, more than the latency of a multiply-add asks for.
constexpr int kChains = 12;

// One lane of a device's thread, a whole vector of a host's.
#if defined(PLEAT_PACKED_GEMM)
template <class T>
using ChainValue = typename packed::Block<packed::Plain<T>>::Vector;
#else
template <class T>
using ChainValue = T;
#endif

template <class T>
KOKKOS_FORCEINLINE_FUNCTION T sum_of_lanes(const ChainValue<T>& value) {
#if defined(PLEAT_PACKED_GEMM)
  T sum = 0;
  for (int lane = 0; lane < packed::Block<packed::Plain<T>>::kLanes; ++lane)
    sum += value[lane];
  return sum;
#else
  return value;
#endif
}

/// The chains of one thread.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION T run_chains(Index thread, Index rounds) {
  using Value = ChainValue<T>;
  // Converges to a finite number that is not known when this is compiled.
  const Value factor = Value{} + T(0.5) + T(1.0e-6) * static_cast<T>(thread % 2);
  const Value term = Value{} + T(0.5);
  Value chain[kChains];
#if defined(PLEAT_PACKED_GEMM)
#pragma GCC unroll 16
#endif
  for (int i = 0; i < kChains; ++i) chain[i] = Value{} + static_cast<T>(i);
  for (Index round = 0; round < rounds; ++round) {
#if defined(PLEAT_PACKED_GEMM)
#pragma GCC unroll 16
#endif
    for (int i = 0; i < kChains; ++i) chain[i] = chain[i] * factor + term;
  }
  T sum = 0;
  for (int i = 0; i < kChains; ++i) sum += sum_of_lanes<T>(chain[i]);
  return sum;
}

}  // namespace

std::int64_t multiply_add_threads(const ExecSpace& exec) { return exec.concurrency(); }

template <class T>
double multiply_add_loop(const ExecSpace& exec, std::int64_t rounds,
                         const DeviceView<T, 1>& sums_N) {
  const Index threads = multiply_add_threads(exec);
  PLEAT_ASSERT(sums_N.extent_int(0) >= threads, "room for {} sums of {} threads",
               sums_N.extent(0), threads);
  Kokkos::parallel_for(
      "pleat::kernels::multiply_add_loop",
      Kokkos::RangePolicy<ExecSpace>(exec, 0, threads),
      KOKKOS_LAMBDA(const Index thread) {
        sums_N(thread) = run_chains<T>(thread, rounds);
      });
  constexpr double kLanes = static_cast<double>(sizeof(ChainValue<T>) / sizeof(T));
  return 2.0 * kLanes * kChains * static_cast<double>(rounds) *
         static_cast<double>(threads);
}

template <class T>
void triad(const ExecSpace& exec, T factor, const DeviceView<const T, 1>& b_N,
           const DeviceView<const T, 1>& c_N, const DeviceView<T, 1>& a_N) {
  constexpr const char* kLabel = "pleat::kernels::triad";
  const Index count = a_N.extent(0);
  check_extents(kLabel, "b_N", b_N, count);
  check_extents(kLabel, "c_N", c_N, count);
  Kokkos::parallel_for(
      kLabel, Kokkos::RangePolicy<ExecSpace>(exec, 0, count),
      KOKKOS_LAMBDA(const Index i) { a_N(i) = b_N(i) + factor * c_N(i); });
}

#define PLEAT_INSTANTIATE_PEAK(T)                                            \
  template double multiply_add_loop<T>(const ExecSpace&, std::int64_t,       \
                                       const DeviceView<T, 1>&);             \
  template void triad<T>(const ExecSpace&, T, const DeviceView<const T, 1>&, \
                         const DeviceView<const T, 1>&, const DeviceView<T, 1>&);
PLEAT_INSTANTIATE_PEAK(float)
PLEAT_INSTANTIATE_PEAK(double)
#undef PLEAT_INSTANTIATE_PEAK

}  // namespace pleat::kernels
