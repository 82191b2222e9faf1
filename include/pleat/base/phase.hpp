// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The named phases of a step: regions for Kokkos Tools and wall time per phase.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
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
/// another counts for the inner one alone. Kept by one thread; any may ask what is under way.
class PhaseTimes {
 public:
  /// \brief What to go on with when a phase ends.
  struct Outer {
    Phase phase;   ///< kCount: none
    double inner;  ///< seconds of phases that ended inside it so far
  };

  Outer begin(Phase phase) {
    const Outer outer{under_way_.load(std::memory_order_relaxed),
                      std::exchange(inner_, 0.0)};
    under_way_.store(phase, std::memory_order_relaxed);
    return outer;
  }
  /// \param outer  what begin() gave
  void end(Phase phase, const Outer& outer, double seconds) {
    seconds_[static_cast<std::size_t>(phase)] += seconds - inner_;
    inner_ = outer.inner + seconds;
    under_way_.store(outer.phase, std::memory_order_relaxed);
  }
  double seconds(Phase phase) const { return seconds_[static_cast<std::size_t>(phase)]; }
  /// \brief The innermost phase that the keeping thread is in.
  std::optional<Phase> under_way() const {
    const Phase phase = under_way_.load(std::memory_order_relaxed);
    return phase == Phase::kCount ? std::nullopt : std::optional(phase);
  }
  void reset() { seconds_.fill(0.0); }

 private:
  std::array<double, kPhases> seconds_{};
  double inner_ = 0.0;  ///< of phases that ended inside the one under way
  std::atomic<Phase> under_way_{Phase::kCount};
};

/// \brief Opens a profiling region for its lifetime and adds its wall time. On a device
/// it times the launch only; the profile of a GPU comes from Kokkos Tools, which fences.
class PhaseScope {
 public:
  PhaseScope(PhaseTimes& times, Phase phase)
      : times_(times),
        phase_(phase),
        outer_(times.begin(phase)),
        start_(std::chrono::steady_clock::now()) {
    Kokkos::Profiling::pushRegion(phase_name(phase));
  }
  ~PhaseScope() {
    Kokkos::Profiling::popRegion();
    const std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start_;
    times_.end(phase_, outer_, elapsed.count());
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  PhaseTimes& times_;
  Phase phase_;
  PhaseTimes::Outer outer_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace pleat
