// SPDX-License-Identifier: Apache-2.0
//
// The host waits for the device once in a layer, for the sizes, and not at all where they
// are known. What an exchange through MPI waits for is the exchange's own.
#include <cstdint>
#include <string_view>

#include <gtest/gtest.h>
#include <Kokkos_Core.hpp>

#include "dispatch/planned_dispatch.hpp"

namespace pleat::test {
namespace {

// A callback of Kokkos is given nothing of ours.
int waits = 0;

void count_wait(const char* name, const std::uint32_t, std::uint64_t*) {
  if (std::string_view(name).starts_with("pleat::model::")) ++waits;
}

class HostWaits : public OverAllDegrees {
 protected:
  void SetUp() override {
    Kokkos::Tools::Experimental::set_begin_fence_callback(count_wait);
  }
  void TearDown() override {
    Kokkos::Tools::Experimental::set_begin_fence_callback(nullptr);
  }

  template <class Work>
  static int waits_in(const Work& work) {
    waits = 0;
    work();
    return waits;
  }

  /// All that a layer does behind plan(), forward and backward.
  static void travel(Planned<double>& planned, const DispatchCase& reference) {
    const Values at_experts(
        static_cast<std::size_t>(planned.record.rows * reference.shape().hidden), 1.0);
    const Values weights(static_cast<std::size_t>(planned.record.rows), 1.0);
    planned.dispatch_weights(reference.own().weight);
    planned.dispatch(reference.own().x);
    planned.combine(at_experts);
    planned.return_weights(weights);
  }
};

TEST_F(HostWaits, OneForTheSizesAndNoneForTheRows) {
  for (const auto& grid : grids()) {
    for (const DispatcherKind kind : kKinds) {
      for (const Routing routing : {Routing::kFull, Routing::kHoles, Routing::kNothing}) {
        SCOPED_TRACE(describe(*grid, routing, kind));
        const DispatchCase reference(*grid, {}, routing);
        Planned<double> planned(*grid, reference, kind);
        EXPECT_EQ(waits_in([&] { planned.plan(); }), 1);
        EXPECT_EQ(waits_in([&] { travel(planned, reference); }), 0);
      }
    }
  }
}

TEST_F(HostWaits, NoneWhereRowsArePadded) {
  for (const auto& grid : grids()) {
    for (const DispatcherKind kind : kKinds) {
      SCOPED_TRACE(describe(*grid, Routing::kHoles, kind));
      const DispatchCase reference(*grid, {}, Routing::kHoles);
      Planned<double> planned(*grid, reference, kind, reference.shape().tokens);
      EXPECT_EQ(waits_in([&] { planned.plan(); }), 0);
      EXPECT_EQ(waits_in([&] { travel(planned, reference); }), 0);
    }
  }
}

}  // namespace
}  // namespace pleat::test
