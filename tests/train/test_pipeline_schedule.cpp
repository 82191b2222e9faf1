// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The orders of all stages are run against each other, as the ranks of a pipeline
/// would.
#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/train/pipeline_schedule.hpp"

namespace pleat::train {
namespace {

using testing::ElementsAre;

/// A pipeline whose stages wait for what they receive and never for what they send.
class Pipeline {
 public:
  Pipeline(std::int64_t stages, std::int64_t chunks, std::int64_t micro_batches)
      : stages_(stages), chunks_(chunks) {
    for (std::int64_t stage = 0; stage < stages; ++stage)
      tasks_.push_back(pipeline_tasks(stages, stage, chunks, micro_batches));
    next_.assign(tasks_.size(), 0);
  }

  const std::vector<PipelineTask>& tasks(std::int64_t stage) const {
    return tasks_[static_cast<std::size_t>(stage)];
  }

  /// \returns the number of tasks that could be done before nothing moved any more
  std::size_t run() {
    std::size_t done = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::int64_t stage = 0; stage < stages_; ++stage) {
        while (step(stage)) {
          moved = true;
          ++done;
        }
      }
    }
    return done;
  }

 private:
  using Done =
      std::tuple<Work, std::int64_t, std::int64_t>;  // micro-batch, virtual stage

  bool step(std::int64_t stage) {
    const auto& tasks = tasks_[static_cast<std::size_t>(stage)];
    std::size_t& next = next_[static_cast<std::size_t>(stage)];
    if (next == tasks.size()) return false;
    const PipelineTask& task = tasks[next];
    const std::int64_t place = task.chunk * stages_ + stage;
    if (!has_input(task, place)) return false;
    done_.insert({task.work, task.micro_batch, place});
    ++next;
    return true;
  }

  bool has_input(const PipelineTask& task, std::int64_t place) const {
    if (task.work == Work::kForward)
      return place == 0 || done_.contains({Work::kForward, task.micro_batch, place - 1});
    const bool last = place == stages_ * chunks_ - 1;
    return done_.contains({Work::kForward, task.micro_batch, place}) &&
           (last || done_.contains({Work::kBackward, task.micro_batch, place + 1}));
  }

  std::int64_t stages_;
  std::int64_t chunks_;
  std::vector<std::vector<PipelineTask>> tasks_;
  std::vector<std::size_t> next_;
  std::set<Done> done_;
};

struct Case {
  std::int64_t stages;
  std::int64_t chunks;
  std::int64_t micro_batches;
};

template <class Check>
void for_each_case(const Check& check) {
  for (std::int64_t stages = 1; stages <= 6; ++stages) {
    for (std::int64_t chunks = 1; chunks <= 4; ++chunks) {
      for (std::int64_t micro_batches = 1; micro_batches <= 20; ++micro_batches) {
        SCOPED_TRACE(testing::Message() << stages << " stages, " << chunks << " chunks, "
                                        << micro_batches << " micro-batches");
        check(Case{stages, chunks, micro_batches});
      }
    }
  }
}

TEST(PipelineSchedule, EveryCaseRunsToItsEnd) {
  for_each_case([](const Case& c) {
    Pipeline pipeline(c.stages, c.chunks, c.micro_batches);
    EXPECT_EQ(pipeline.run(),
              static_cast<std::size_t>(2 * c.stages * c.chunks * c.micro_batches));
  });
}

TEST(PipelineSchedule, EachTaskOnceAndForwardFirst) {
  for_each_case([](const Case& c) {
    for (std::int64_t stage = 0; stage < c.stages; ++stage) {
      std::set<std::tuple<Work, std::int64_t, std::int64_t>> seen;
      for (const PipelineTask& task :
           pipeline_tasks(c.stages, stage, c.chunks, c.micro_batches)) {
        EXPECT_TRUE(task.micro_batch >= 0 && task.micro_batch < c.micro_batches);
        EXPECT_TRUE(task.chunk >= 0 && task.chunk < c.chunks);
        EXPECT_TRUE(seen.insert({task.work, task.micro_batch, task.chunk}).second);
        EXPECT_TRUE(task.work == Work::kForward ||
                    seen.contains({Work::kForward, task.micro_batch, task.chunk}));
      }
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(2 * c.chunks * c.micro_batches));
    }
  });
}

TEST(PipelineSchedule, EarlierStagesHoldMore) {
  for_each_case([](const Case& c) {
    for (std::int64_t stage = 0; stage < c.stages; ++stage) {
      const std::int64_t depth =
          pipeline_depth(pipeline_tasks(c.stages, stage, c.chunks, c.micro_batches));
      const std::int64_t all = c.chunks * c.micro_batches;
      if (c.chunks == 1) {
        EXPECT_EQ(depth, std::min(c.stages - stage, all));
      } else {
        EXPECT_LE(depth, 2 * (c.stages - stage - 1) + (c.chunks - 1) * c.stages + 1);
        EXPECT_LE(depth, all);
      }
    }
  });
}

/// "F0.1" is the forward of micro-batch 0 through chunk 1.
std::vector<std::string> words(const std::vector<PipelineTask>& tasks) {
  std::vector<std::string> text;
  for (const PipelineTask& task : tasks) {
    text.push_back(fmt::format("{}{}.{}", task.work == Work::kForward ? 'F' : 'B',
                               task.micro_batch, task.chunk));
  }
  return text;
}

TEST(PipelineSchedule, OneForwardOneBackwardByHand) {
  EXPECT_THAT(
      words(pipeline_tasks(3, 0, 1, 4)),
      ElementsAre("F0.0", "F1.0", "F2.0", "B0.0", "F3.0", "B1.0", "B2.0", "B3.0"));
  EXPECT_THAT(words(pipeline_tasks(3, 2, 1, 2)),
              ElementsAre("F0.0", "B0.0", "F1.0", "B1.0"));
}

// Two stages, two chunks: stage 1 sends its first gradient after the first group's
// forwards.
TEST(PipelineSchedule, InterleavedByHand) {
  EXPECT_THAT(
      words(pipeline_tasks(2, 1, 2, 4)),
      ElementsAre("F0.0", "F1.0", "F0.1", "B0.1", "F1.1", "B1.1", "F2.0", "B0.0", "F3.0",
                  "B1.0", "F2.1", "B2.1", "F3.1", "B3.1", "B2.0", "B3.0"));
  // A warm-up of 2 (2 - 0 - 1) + (2 - 1) 2 = 4 forwards.
  const auto first = words(pipeline_tasks(2, 0, 2, 4));
  EXPECT_THAT(std::vector(first.begin(), first.begin() + 6),
              ElementsAre("F0.0", "F1.0", "F0.1", "F1.1", "F2.0", "B0.1"));
}

TEST(PipelineSchedule, TheDepthOfManyMicroBatchesIsThatOfAllTasks) {
  for (std::int64_t stages = 1; stages <= 6; ++stages) {
    for (std::int64_t stage = 0; stage < stages; ++stage) {
      for (std::int64_t chunks = 1; chunks <= 4; ++chunks) {
        for (std::int64_t count = 0; count <= 6 * stages; ++count) {
          EXPECT_EQ(pipeline_depth(stages, stage, chunks, count),
                    pipeline_depth(pipeline_tasks(stages, stage, chunks, count)))
              << stage << " of " << stages << ", " << chunks << " chunks, " << count;
        }
      }
    }
  }
}

TEST(PipelineSchedule, WithoutMicroBatchesThereIsNothingToDo) {
  EXPECT_TRUE(pipeline_tasks(4, 1, 1, 0).empty());
  EXPECT_TRUE(pipeline_tasks(4, 1, 2, 0).empty());
  EXPECT_EQ(pipeline_depth({}), 0);
}

plan::ModelConfig model(std::int64_t layers, std::int64_t vocab) {
  plan::ModelConfig config;
  config.layers = layers;
  config.hidden = 64;
  config.heads = 4;
  config.kv_heads = 4;
  config.head_dim = 16;
  config.ffn = 4096;
  config.vocab = vocab;
  config.moe.ffn = 32;
  config.moe_layer.assign(static_cast<std::size_t>(layers), true);
  return config;
}

/// The slowest virtual stage of a layout.
double slowest(const plan::ModelConfig& config, const std::vector<std::int64_t>& layout) {
  double most = 0.0;
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < layout.size(); ++stage) {
    double cost = stage + 1 == layout.size() ? plan::head_flops_per_token(config) : 0.0;
    for (std::int64_t i = 0; i < layout[stage]; ++i, ++layer)
      cost += plan::layer_flops_per_token(config, config.moe_layer[layer], 128);
    most = std::max(most, cost);
  }
  return most;
}

/// The best that any layout with at least one layer per stage reaches, by trying all.
double best_of_all(const plan::ModelConfig& config, std::vector<std::int64_t> layout,
                   std::int64_t stages, std::int64_t left) {
  if (stages == 1) {
    layout.push_back(left);
    return slowest(config, layout);
  }
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t size = 1; size <= left - stages + 1; ++size) {
    std::vector<std::int64_t> longer = layout;
    longer.push_back(size);
    best = std::min(best, best_of_all(config, longer, stages - 1, left - size));
  }
  return best;
}

TEST(BalancedLayout, EqualLayersAreDividedEvenly) {
  EXPECT_THAT(balanced_layout(model(8, 1), 128, 4), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(balanced_layout(model(5, 1), 128, 1), ElementsAre(5));
  EXPECT_THAT(balanced_layout(model(3, 1), 128, 3), ElementsAre(1, 1, 1));
}

TEST(BalancedLayout, TheHeadTakesThePlaceOfLayers) {
  plan::ModelConfig config = model(8, 1);
  const double layer = plan::layer_flops_per_token(config, true, 128);
  // A head as dear as two layers: 8 + 2 over two stages is 5 and 3 + 2.
  config.vocab = static_cast<std::int64_t>(2.0 * layer / (6.0 * 64.0));
  EXPECT_THAT(balanced_layout(config, 128, 2), ElementsAre(5, 3));
}

TEST(BalancedLayout, NoOtherOneIsFaster) {
  plan::ModelConfig config = model(9, 3000);
  for (const std::size_t dense : {0u, 1u, 5u}) config.moe_layer[dense] = false;
  for (std::int64_t stages = 1; stages <= 9; ++stages) {
    const std::vector<std::int64_t> layout = balanced_layout(config, 128, stages);
    EXPECT_EQ(layout.size(), static_cast<std::size_t>(stages));
    EXPECT_EQ(std::accumulate(layout.begin(), layout.end(), std::int64_t{0}), 9);
    EXPECT_GE(*std::min_element(layout.begin(), layout.end()), 1);
    EXPECT_NEAR(slowest(config, layout) / best_of_all(config, {}, stages, 9), 1.0,
                1.0e-9);
  }
}

TEST(BalancedLayout, MoreStagesThanLayersLeaveSomeEmpty) {
  const std::vector<std::int64_t> layout = balanced_layout(model(2, 64), 128, 4);
  EXPECT_EQ(layout.size(), 4u);
  EXPECT_EQ(std::accumulate(layout.begin(), layout.end(), std::int64_t{0}), 2);
  EXPECT_EQ(*std::max_element(layout.begin(), layout.end()), 1);
}

}  // namespace
}  // namespace pleat::train
