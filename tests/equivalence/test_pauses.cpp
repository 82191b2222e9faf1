// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A thousand steps while single ranks stop at random moments: exchanges that different
/// ranks start in different orders would deadlock.

#include <csignal>
#include <ctime>

#include <gtest/gtest.h>
#include <sys/time.h>

#include "mappings.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/grid_choice.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

// The handler of a signal can read nothing else.
volatile std::sig_atomic_t pauses_taken = 0;

void pause_here(int) {
  const timespec two_milliseconds{0, 2'000'000};
  nanosleep(&two_milliseconds, nullptr);
  pauses_taken = pauses_taken + 1;
}

/// Stops this rank for two milliseconds again and again, wherever it is.
class Pauses {
 public:
  explicit Pauses(int rank) {
    struct sigaction action = {};
    action.sa_handler = pause_here;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, &before_);
    // Each rank by a beat of its own, so that they drift against each other.
    const itimerval beat{{0, 5000 + 1700 * rank}, {0, 1000 + 900 * rank}};
    setitimer(ITIMER_REAL, &beat, nullptr);
  }
  ~Pauses() {
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
  const Pauses pauses(static_cast<int>(grid.rank()));
  for (std::int64_t step = 1; step <= steps; ++step) {
    ASSERT_TRUE(engine.train_step(step, 1e-3, data, 4 * (step - 1)).finite()) << step;
  }
}

TEST(Pauses, AThousandStepsEndAndSoTheOrderOfExchangesIsTheSame) {
  train::RunConfig folded = tiny();
  folded.parallel.pipeline = 2;
  folded.parallel.tensor = 2;
  folded.parallel.expert = 2;
  run_steps(folded, 400);
  train::RunConfig sharded = tiny();
  sharded.parallel.context = 2;
  sharded.parallel.expert_tensor = 2;
  sharded.parallel.sharding = plan::Sharding::kParameters;
  run_steps(sharded, 300);
  train::RunConfig data_parallel = tiny();
  data_parallel.parallel.expert = 4;
  data_parallel.parallel.dispatcher = plan::DispatcherKind::kAllGather;
  run_steps(data_parallel, 300);
  EXPECT_GT(pauses_taken, 0);
}

}  // namespace
}  // namespace pleat::test
