// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/grid_choice.hpp"

#include <algorithm>

#include "pleat/base/error.hpp"
#include "pleat/base/random.hpp"
#include "pleat/comm/communicator.hpp"
#include "pleat/train/pipeline_schedule.hpp"

namespace pleat::train {
namespace {

using comm::Axis;

plan::ChunkLoad layers_of(const plan::ModelConfig& model, const model::Slice& layers) {
  const auto first = model.moe_layer.begin() + layers.first;
  const auto moe = std::count(first, first + layers.count, true);
  return {.moe_layers = moe, .dense_layers = layers.count - moe, .micro_batches = 0};
}

/// How many micro-batches each chunk holds at the moment when most layers are held.
void count_in_flight(const std::vector<PipelineTask>& tasks, plan::StageLoad& load) {
  std::vector<std::int64_t> held(load.chunks.size(), 0);
  std::int64_t layers = 0;
  std::int64_t most = -1;
  for (const PipelineTask& task : tasks) {
    const auto chunk = static_cast<std::size_t>(task.chunk);
    const std::int64_t change = task.work == Work::kForward ? 1 : -1;
    held[chunk] += change;
    // Each pass also keeps its output.
    layers +=
        change * (load.chunks[chunk].moe_layers + load.chunks[chunk].dense_layers + 1);
    if (layers <= most) continue;
    most = layers;
    for (std::size_t c = 0; c < held.size(); ++c) load.chunks[c].micro_batches = held[c];
  }
}

/// Whether the model can be cut by these degrees.
bool fits_model(const RunConfig& config, const comm::Degrees& degrees) {
  plan::Mapping mapping = mapping_of(config);
  mapping.pipeline = degrees.pipeline;
  mapping.context = degrees.context;
  mapping.tensor = degrees.tensor;
  mapping.expert = degrees.expert;
  mapping.expert_tensor = degrees.expert_tensor;
  return plan::is_legal(config.model, batch_of(config), mapping);
}

std::int64_t scalar_bytes(Precision precision) {
  switch (precision) {
    case Precision::kFp64: return 8;
    case Precision::kFp32: return 4;
    case Precision::kBf16: return 2;
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown precision");
}

}  // namespace

plan::Batch batch_of(const RunConfig& config) {
  return {config.batch.sequence, config.batch.micro, config.batch.global};
}

plan::Mapping mapping_of(const RunConfig& config) {
  const ParallelSection& parallel = config.parallel;
  return {.pipeline = parallel.pipeline,
          .context = parallel.context,
          .tensor = parallel.tensor,
          .expert = parallel.expert,
          .expert_tensor = parallel.expert_tensor,
          .chunks = parallel.chunks,
          .layout = parallel.layout,
          .schedule = parallel.schedule};
}

plan::Mapping mapping_of(const RunConfig& config, const comm::GridShape& grid) {
  plan::Mapping mapping = mapping_of(config);
  mapping.data = grid.degree(Axis::kData);
  mapping.expert_data = grid.degree(Axis::kExpertData);
  return mapping;
}

comm::Degrees degrees_of(const RunConfig& config) {
  const ParallelSection& parallel = config.parallel;
  return {parallel.pipeline, parallel.context, parallel.tensor, parallel.expert,
          parallel.expert_tensor};
}

comm::GridShape grid_shape_of(const RunConfig& config, std::int64_t ranks) {
  comm::require_degrees(degrees_of(config), ranks);
  plan::validate_mapping(config.model, batch_of(config), mapping_of(config), ranks);
  return comm::GridShape(
      degrees_of(config), ranks,
      [&](const comm::Degrees& other) { return fits_model(config, other); });
}

comm::Grid make_grid(const RunConfig& config, MPI_Comm world, std::int64_t ranks) {
  return comm::Grid(world, grid_shape_of(config, ranks), config.parallel.backend,
                    config.parallel.overlap ? comm::Overlap::kYes : comm::Overlap::kNo);
}

std::vector<std::int64_t> stage_layout(const RunConfig& config) {
  const ParallelSection& parallel = config.parallel;
  if (!parallel.layout.empty()) return parallel.layout;
  return balanced_layout(config.model, config.batch.sequence,
                         parallel.pipeline * parallel.chunks);
}

model::Placement placement_of(const RunConfig& config, const comm::GridShape& grid,
                              std::int64_t rank) {
  return model::make_placement(config.model, grid, rank, stage_layout(config));
}

void require_same_deck(const RunConfig& config, MPI_Comm world) {
  const auto ranks = comm::make_mpi_communicator(world, "deck");
  // 62 bits, so that the negative is a number too.
  const auto hash = static_cast<std::int64_t>(hash_name(config.resolved_deck) >> 2);
  const std::int64_t largest = ranks->all_reduce_value(hash, comm::Reduction::kMax);
  const std::int64_t smallest = -ranks->all_reduce_value(-hash, comm::Reduction::kMax);
  PLEAT_REQUIRE(largest == smallest, InputError, "PL0722",
                "the ranks of this job read different decks\n"
                "HINT: give all of them the same deck, the same overrides and the same files; is a "
                "copy on one node out of date?");
}

std::int64_t micro_batches_per_rank(const RunConfig& config, std::int64_t data_ranks) {
  const std::int64_t micro_batches = config.batch.global / config.batch.micro;
  return (micro_batches + data_ranks - 1) / data_ranks;
}

plan::StageLoad stage_load(const RunConfig& config, const comm::GridShape& grid,
                           std::int64_t stage) {
  const std::int64_t stages = grid.degree(Axis::kPipeline);
  const model::Placement placement =
      placement_of(config, grid, stage * (grid.ranks() / stages));
  plan::StageLoad load{.embedding = placement.has_embedding, .head = placement.has_head};
  for (const model::Slice& layers : placement.chunks)
    load.chunks.push_back(layers_of(config.model, layers));
  count_in_flight(
      pipeline_tasks(stages, stage, config.parallel.chunks,
                     micro_batches_per_rank(config, grid.degree(Axis::kData))),
      load);
  return load;
}

plan::MemoryRequest memory_request(const RunConfig& config, const comm::GridShape& grid,
                                   std::int64_t stage) {
  return {.batch = batch_of(config),
          .mapping = mapping_of(config, grid),
          .recompute = config.precision.recompute,
          .scalar_bytes = scalar_bytes(config.precision.compute),
          .sharding = config.parallel.sharding,
          .dispatcher = config.parallel.dispatcher,
          .exchange = config.parallel.context_exchange,
          .stage = stage_load(config, grid, stage)};
}

}  // namespace pleat::train
