// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief What runs beside an exchange does not wait for it: a rank goes on with its work
/// while another one has not come yet. On two ranks.

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "fault_case.hpp"
#include "pleat/model/dispatcher.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/grid_choice.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::steady_clock;

constexpr Seconds kDelay{1.0};

/// Seconds from a common start to where the first rank gets beyond the start of an
/// exchange, and to its end; the second rank comes kDelay late.
struct Times {
  double beyond_start = 0.0;
  double end = 0.0;
};

/// \param work  is given a function to call where the exchange is under way
template <class Work>
Times first_rank_ahead(const comm::Grid& grid, const Work& work) {
  comm::Communicator& ranks = grid.group(comm::GroupName::kWorld);
  ranks.barrier();
  const Clock::time_point start = Clock::now();
  if (ranks.rank() == 1) std::this_thread::sleep_for(kDelay);
  Times times;
  const auto now = [&] { return Seconds(Clock::now() - start).count(); };
  work([&] { times.beyond_start = now(); });
  times.end = now();
  return times;
}

/// On the first rank; the second finds out nothing.
void expect_overlap(const comm::Grid& grid, const Times& times) {
  if (grid.rank() != 0) return;
  EXPECT_LT(times.beyond_start, 0.5 * kDelay.count());
  EXPECT_GT(times.end, 0.9 * kDelay.count());
}

void expect_backward_goes_on(const train::RunConfig& config) {
  const comm::Grid grid(world(), train::grid_shape_of(config, 2));
  train::Engine<double> engine(config, grid);
  engine.initialise();
  const ExecSpace exec;
  engine.store().begin_step(exec, 1);
  const std::int64_t last_layer = model::head_unit(config.model) - 1;
  const Times times = first_rank_ahead(grid, [&](const auto& under_way) {
    engine.store().hooks().after_backward(last_layer);
    under_way();
    engine.store().finish_reduction();
  });
  expect_overlap(grid, times);
}

// A layer's attention, norms and router, and where they have replicas its experts.
TEST(Overlap, TheBackwardPassGoesOnWhileALayerIsReduced) {
  expect_backward_goes_on(on(small_mixtral(), {}));
  expect_backward_goes_on(on(small_mixtral(), {.expert = 2}));
}

TEST(Overlap, TheSharedExpertRunsWhileTokensTravel) {
  const train::RunConfig config = on(small_mixtral(), {.expert = 2});
  const comm::Grid grid(world(), train::grid_shape_of(config, 2));
  for (const auto kind :
       {plan::DispatcherKind::kAllToAll, plan::DispatcherKind::kAllGather}) {
    const auto dispatcher =
        model::make_dispatcher<double>(kind, config.model.moe.experts, grid);
    const ExecSpace exec;
    Arena saved("saved"), scratch("scratch");
    const DeviceView<std::int32_t, 2> index_TK("index", 6, 2);
    Kokkos::deep_copy(Kokkos::subview(index_TK, Kokkos::ALL, 1),
                      static_cast<std::int32_t>(config.model.moe.experts - 1));
    const DeviceView<double, 2> x_TD("x", 6, 5);
    model::DispatchRecord record;
    dispatcher->plan(exec, index_TK, saved, scratch, record);
    const DeviceView<double, 2> x_RD("rows", record.rows, 5);
    const Times there = first_rank_ahead(grid, [&](const model::Meanwhile& under_way) {
      dispatcher->dispatch(exec, record, x_TD, scratch, x_RD, under_way);
    });
    expect_overlap(grid, there);
    const Times back = first_rank_ahead(grid, [&](const model::Meanwhile& under_way) {
      dispatcher->combine(exec, record, x_RD, scratch, x_TD, under_way);
    });
    expect_overlap(grid, back);
  }
}

}  // namespace
}  // namespace pleat::test
