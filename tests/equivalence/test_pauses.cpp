// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A thousand steps while single ranks stop at random moments for random times:
/// exchanges that different ranks start in different orders would deadlock.

#include <csignal>
#include <cstdint>
#include <ctime>

#include <gtest/gtest.h>
#include <sys/time.h>

#include "mappings.hpp"
#include "pleat/base/random.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/grid_choice.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

constexpr std::uint64_t kSeed = 11;

// The handler of a signal can read nothing else.
volatile std::sig_atomic_t pausing = 0;
volatile std::sig_atomic_t own_rank = 0;
volatile std::sig_atomic_t pauses_taken = 0;

/// Random numbers of this rank, by the number of its pause.
double draw(std::uint64_t option) {
  const CounterRandom random(kSeed, static_cast<std::uint64_t>(own_rank));
  return random.uniform(2 * static_cast<std::uint64_t>(pauses_taken) + option);
}

/// Mostly short times and some long ones; a quarter of the longest on average.
long microseconds(double longest, double uniform) {
  return 1 + static_cast<long>(longest * uniform * uniform * uniform);
}

void start_timer() {
  const itimerval once{{0, 0}, {0, microseconds(20'000.0, draw(0))}};
  setitimer(ITIMER_REAL, &once, nullptr);
}

/// System calls and arithmetic alone, as in a handler nothing else may be called.
void pause_here(int) {
  const timespec length{0, 1000 * microseconds(8'000.0, draw(1))};
  nanosleep(&length, nullptr);
  pauses_taken = pauses_taken + 1;
  if (pausing != 0) start_timer();
}

/// Stops this rank again and again, wherever it is: when and how long is drawn on each rank
/// for itself. About two of seven milliseconds are pauses.
class Pauses {
 public:
  explicit Pauses(int rank) {
    struct sigaction action = {};
    action.sa_handler = pause_here;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, &before_);
    own_rank = rank;
    pausing = 1;
    start_timer();
  }
  ~Pauses() {
    // First: a pause that ends now must not start the timer again.
    pausing = 0;
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }
  Pauses(const Pauses&) = delete;
  Pauses& operator=(const Pauses&) = delete;

 private:
  struct sigaction before_ = {};
};

train::RunConfig tiny() {
  train::RunConfig config = small_qwen2_moe();
  config.model.layers = 2;
  config.model.moe_layer = {true, true};
  config.model.hidden = 8;
  config.model.heads = 2;
  config.batch = {.sequence = 8, .micro = 1, .global = 4};
  return config;
}

void run_steps(const train::RunConfig& config, std::int64_t steps) {
  const comm::Grid grid(world(), train::grid_shape_of(config, 4));
  train::Engine<double> engine(config, grid);
  engine.initialise();
  const RaggedTokens data(config.model.vocab, config.run.seed);
  const std::sig_atomic_t before = pauses_taken;
  const Pauses pauses(static_cast<int>(grid.rank()));
  for (std::int64_t step = 1; step <= steps; ++step) {
    ASSERT_TRUE(engine.train_step(step, 1e-3, data, 4 * (step - 1)).finite()) << step;
  }
  EXPECT_GT(pauses_taken, before);
}

// 1,000 steps in all.

TEST(Pauses, FoldedPipeline) {
  train::RunConfig config = tiny();
  config.parallel.pipeline = 2;
  config.parallel.tensor = 2;
  config.parallel.expert = 2;
  run_steps(config, 300);
}

TEST(Pauses, InterleavedPipelineWithContext) {
  train::RunConfig config = tiny();
  config.model.layers = 4;
  config.model.moe_layer = {true, true, true, true};
  config.parallel.pipeline = 2;
  config.parallel.context = 2;
  config.parallel.expert = 2;
  config.parallel.schedule = plan::PipelineSchedule::kInterleaved;
  config.parallel.chunks = 2;
  run_steps(config, 200);
}

TEST(Pauses, ShardedParameters) {
  train::RunConfig config = tiny();
  config.parallel.context = 2;
  config.parallel.expert_tensor = 2;
  config.parallel.sharding = plan::Sharding::kParameters;
  run_steps(config, 250);
}

TEST(Pauses, ExpertsOverDataRanks) {
  train::RunConfig config = tiny();
  config.parallel.expert = 4;
  config.parallel.dispatcher = plan::DispatcherKind::kAllGather;
  run_steps(config, 250);
}

}  // namespace
}  // namespace pleat::test
