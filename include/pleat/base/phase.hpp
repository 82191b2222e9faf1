// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The named phases of a step: regions for Kokkos Tools and wall time per phase.

#include <array>
#include <chrono>
#include <cstddef>
#include <utility>

#include <Kokkos_Core.hpp>

namespace pleat {

enum class Phase : std::size_t {
  kData,
  kEmbedding,
  kAttention,
  kRouter,
  kDispatch,
  kExperts,
  kDenseFfn,
  kHead,
  kOptimizer,
  kInputOutput,
  kReduction,  ///< gradients and weights over the ranks that share them
  kPipeline,   ///< waiting for the neighbouring stages
  kCount
};

inline constexpr std::size_t kPhases = static_cast<std::size_t>(Phase::kCount);

/// \brief The name of a phase as regions, metrics.csv and docs/performance.md show it.
constexpr const char* phase_name(Phase phase) {
  constexpr std::array<const char*, kPhases> kNames{
      "data",      "embedding", "attention", "router", "dispatch",  "experts",
      "dense_ffn", "head",      "optimizer", "io",     "reduction", "pipeline"};
  return kNames[static_cast<std::size_t>(phase)];
}

/// \brief Seconds spent in each phase since the last reset; time in a phase inside
/// another counts for the inner one alone.
class PhaseTimes {
 public:
  /// \brief To be called when a phase begins. \return what end() takes
  double begin() { return std::exchange(inner_, 0.0); }
  /// \param outer_inner  what begin() gave
  void end(Phase phase, double outer_inner, double seconds) {
    seconds_[static_cast<std::size_t>(phase)] += seconds - inner_;
    inner_ = outer_inner + seconds;
  }
  double seconds(Phase phase) const { return seconds_[static_cast<std::size_t>(phase)]; }
  void reset() { seconds_.fill(0.0); }

 private:
  std::array<double, kPhases> seconds_{};
  double inner_ = 0.0;  ///< of phases that ended inside the one under way
};

/// \brief Opens a profiling region for its lifetime and adds its wall time. On a device
/// it times the launch only; the profile of a GPU comes from Kokkos Tools, which fences.
class PhaseScope {
 public:
  PhaseScope(PhaseTimes& times, Phase phase)
      : times_(times),
        phase_(phase),
        outer_inner_(times.begin()),
        start_(std::chrono::steady_clock::now()) {
    Kokkos::Profiling::pushRegion(phase_name(phase));
  }
  ~PhaseScope() {
    Kokkos::Profiling::popRegion();
    const std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start_;
    times_.end(phase_, outer_inner_, elapsed.count());
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  PhaseTimes& times_;
  Phase phase_;
  double outer_inner_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace pleat
