// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/pipeline_schedule.hpp"

#include <algorithm>

#include "pleat/base/error.hpp"

namespace pleat::train {
namespace {

/// Forwards of a stage before its first backward: one micro-batch on each later stage.
/// With chunks the way through the later stages is gone twice before the first gradient
/// comes back, and the earlier chunks of a whole group come first (Narayanan et al.,
/// section 2.2).
std::int64_t warm_up(std::int64_t stages, std::int64_t stage, std::int64_t chunks) {
  const std::int64_t behind = stages - stage - 1;
  return chunks == 1 ? behind : 2 * behind + (chunks - 1) * stages;
}

/// The n-th forward, or backward, of a stage: groups of `stages` micro-batches pass one
/// chunk after the other, forward from the first chunk on, backward from the last one.
PipelineTask nth_task(Work work, std::int64_t n, std::int64_t stages,
                      std::int64_t chunks) {
  const std::int64_t group = stages * chunks;
  const std::int64_t chunk = n % group / stages;
  return {work, n / group * stages + n % stages,
          work == Work::kForward ? chunk : chunks - 1 - chunk};
}

}  // namespace

std::vector<PipelineTask> pipeline_tasks(std::int64_t stages, std::int64_t stage,
                                         std::int64_t chunks,
                                         std::int64_t micro_batches) {
  PLEAT_ASSERT(stage >= 0 && stage < stages && chunks >= 1 && micro_batches >= 0,
               "stage {} of {}, {} chunks, {} micro-batches", stage, stages, chunks,
               micro_batches);
  // The interleaved order is made for whole groups. The micro-batches that are missing in
  // the last one are left out on every stage: what remains of orders without a deadlock
  // has none.
  const std::int64_t whole =
      chunks == 1 ? micro_batches : (micro_batches + stages - 1) / stages * stages;
  const std::int64_t each = whole * chunks;
  const std::int64_t ahead = std::min(each, warm_up(stages, stage, chunks));
  std::vector<PipelineTask> tasks;
  const auto add = [&](Work work, std::int64_t n) {
    if (n < 0 || n >= each) return;
    const PipelineTask task = nth_task(work, n, stages, chunks);
    if (task.micro_batch < micro_batches) tasks.push_back(task);
  };
  for (std::int64_t n = 0; n < each + ahead; ++n) {
    add(Work::kForward, n);
    add(Work::kBackward, n - ahead);
  }
  return tasks;
}

std::int64_t pipeline_depth(const std::vector<PipelineTask>& tasks) {
  std::int64_t held = 0;
  std::int64_t most = 0;
  for (const PipelineTask& task : tasks) {
    held += task.work == Work::kForward ? 1 : -1;
    most = std::max(most, held);
  }
  return most;
}

// Two groups of micro-batches hold more forwards than a warm-up; behind it a stage holds no
// more than at its end.
std::int64_t pipeline_depth(std::int64_t stages, std::int64_t stage, std::int64_t chunks,
                            std::int64_t micro_batches) {
  return pipeline_depth(
      pipeline_tasks(stages, stage, chunks, std::min(micro_batches, 2 * stages)));
}

}  // namespace pleat::train
