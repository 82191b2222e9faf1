// SPDX-License-Identifier: Apache-2.0
#include "grid_report.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "pleat/model/placement.hpp"
#include "pleat/train/grid_choice.hpp"
#include "pleat/train/pipeline_schedule.hpp"

namespace pleat::cli {
namespace {

using comm::Axis;
using Axes = std::array<Axis, 4>;

/// The coordinates along the axes of a grid that are cut, "data 1, context 0".
std::string coordinates(const comm::GridShape& grid, std::int64_t rank,
                        const Axes& axes) {
  std::vector<std::string> parts;
  for (const Axis axis : axes) {
    if (grid.degree(axis) == 1) continue;
    parts.push_back(fmt::format("{} {}", axis_name(axis), grid.coordinate(rank, axis)));
  }
  return parts.empty() ? "whole" : fmt::format("{}", fmt::join(parts, ", "));
}

/// "experts 2 to 3 of 8", "expert 5 of 8".
std::string part(const std::string& what, const model::Slice& slice, std::int64_t whole) {
  if (slice.count == whole) return fmt::format("all {} {}s", whole, what);
  if (slice.count == 0) return fmt::format("no {}s", what);
  if (slice.count == 1) return fmt::format("{} {} of {}", what, slice.first, whole);
  return fmt::format("{}s {} to {} of {}", what, slice.first, slice.end() - 1, whole);
}

std::string layer_list(const std::vector<model::Slice>& chunks) {
  std::vector<std::string> parts;
  for (const model::Slice& layers : chunks) {
    if (layers.count == 0) {
      parts.emplace_back("none");
    } else if (layers.count == 1) {
      parts.push_back(fmt::format("{}", layers.first));
    } else {
      parts.push_back(fmt::format("{} to {}", layers.first, layers.end() - 1));
    }
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

/// The positions of each sequence that a context rank attends from: two chunks, an early
/// and a late one.
std::string positions(std::int64_t sequence, std::int64_t ranks, std::int64_t rank) {
  if (ranks == 1) return fmt::format("all {} positions", sequence);
  const std::int64_t chunk = sequence / (2 * ranks);
  const std::int64_t late = 2 * ranks - 1 - rank;
  if (rank == ranks - 1)
    return fmt::format("positions {} to {}", rank * chunk, (late + 1) * chunk - 1);
  return fmt::format("positions {} to {} and {} to {}", rank * chunk,
                     (rank + 1) * chunk - 1, late * chunk, (late + 1) * chunk - 1);
}

std::string holdings(const train::RunConfig& config, const comm::GridShape& grid,
                     std::int64_t rank) {
  const model::Placement p = train::placement_of(config, grid, rank);
  const plan::ModelConfig& model = config.model;
  std::vector<std::string> cut{part("head", p.heads, model.heads),
                               part("kv head", p.kv_heads, model.kv_heads)};
  if (model.has_dense_layers()) cut.push_back(part("dense ffn column", p.ffn, model.ffn));
  if (model.has_moe_layers() && model.moe.shared_ffn > 0)
    cut.push_back(part("shared ffn column", p.shared_ffn, model.moe.shared_ffn));
  if (p.has_embedding || p.has_head)
    cut.push_back(part("vocabulary row", p.vocab, model.vocab));
  std::string text =
      fmt::format("  layers      {}{}{}\n", layer_list(p.chunks),
                  p.has_embedding ? "; embedding" : "", p.has_head ? "; head" : "");
  text += fmt::format("  attention   {}; {}\n",
                      positions(config.batch.sequence, grid.degree(Axis::kContext),
                                grid.coordinate(rank, Axis::kContext)),
                      fmt::join(cut, "; "));
  if (model.has_moe_layers()) {
    text += fmt::format("  MoE         {}; {}\n",
                        part("expert", p.experts, model.moe.experts),
                        part("ffn column", p.expert_ffn, model.moe.ffn));
  }
  return text;
}

/// A group of ranks and what it is for.
struct Exchange {
  const char* name;
  std::vector<std::int64_t> ranks;
  std::string what;
};

/// Those of a group of ranks whose placement is wanted.
template <class Wanted>
std::vector<std::int64_t> ranks_with(const train::RunConfig& config,
                                     const comm::GridShape& grid,
                                     const std::vector<std::int64_t>& group,
                                     const Wanted& wanted) {
  std::vector<std::int64_t> ranks;
  for (const std::int64_t other : group) {
    if (wanted(train::placement_of(config, grid, other))) ranks.push_back(other);
  }
  return ranks;
}

/// The tensor ranks with the same kv heads, where there are fewer heads than ranks.
std::vector<std::int64_t> kv_copies(const train::RunConfig& config,
                                    const comm::GridShape& grid, std::int64_t rank) {
  const auto own = train::placement_of(config, grid, rank).kv_copy_group();
  if (!own) return {};
  return ranks_with(config, grid, grid.group(rank, {Axis::kTensor}),
                    [&](const model::Placement& p) { return p.kv_copy_group() == own; });
}

/// The ends of the pipeline, which both hold a tied embedding.
std::vector<std::int64_t> tied_ends(const train::RunConfig& config,
                                    const comm::GridShape& grid, std::int64_t rank) {
  if (!train::placement_of(config, grid, rank).shares_tied_matrix()) return {};
  return ranks_with(config, grid, grid.group(rank, {Axis::kPipeline}),
                    [](const model::Placement& p) { return p.shares_tied_matrix(); });
}

std::vector<Exchange> attention_exchanges(const train::RunConfig& config,
                                          const comm::GridShape& grid, std::int64_t rank,
                                          const std::string& state) {
  const bool ring = config.parallel.context_exchange == plan::ContextExchange::kRing;
  const bool moe = config.model.has_moe_layers();
  const bool whole_step =
      config.model.moe.auxiliary_scope == plan::AuxiliaryScope::kGlobalBatch;
  std::vector<Exchange> list{
      {"tensor", grid.group(rank, {Axis::kTensor}),
       "rows gathered before, results scattered after"},
      {"kv copies", kv_copies(config, grid, rank),
       "gradients of the kv heads they share"},
      {"context", grid.group(rank, {Axis::kContext}),
       ring ? "keys and values, in a ring" : "keys and values, all at once"},
      {"data", grid.group(rank, {Axis::kData}), "how many tokens carry loss"}};
  if (moe && (!whole_step || config.model.moe.drop.capacity_factor > 0.0)) {
    list.push_back({"context*tensor", grid.group(rank, {Axis::kContext, Axis::kTensor}),
                    "router statistics of a micro-batch"});
  }
  list.push_back({"data*context", grid.group(rank, {Axis::kData, Axis::kContext}),
                  "gradients of attention, dense layers, embedding" + state});
  const std::string statistics = moe && whole_step ? "router statistics; " : "";
  const std::string gradients = moe ? "gradients of norms and router" : "gradients of norms";
  list.push_back({"data*context*tensor",
                  grid.group(rank, {Axis::kData, Axis::kContext, Axis::kTensor}),
                  statistics + gradients + state});
  return list;
}

std::vector<Exchange> moe_exchanges(const train::RunConfig& config,
                                    const comm::GridShape& grid, std::int64_t rank,
                                    const std::string& state) {
  std::vector<Exchange> list;
  if (config.parallel.dispatcher == plan::DispatcherKind::kAllToAll) {
    list = {{"expert", grid.group(rank, {Axis::kExpert}), "tokens to their experts"},
            {"expert_tensor", grid.group(rank, {Axis::kExpertTensor}),
             "tokens to all parts of an expert"}};
  }
  list.push_back({"expert*expert_tensor",
                  grid.group(rank, {Axis::kExpert, Axis::kExpertTensor}),
                  list.empty() ? "tokens of all to all" : "how many tokens go where"});
  list.push_back({"expert_data", grid.group(rank, {Axis::kExpertData}),
                  "gradients of experts" + state});
  return list;
}

std::string exchange_lines(const std::vector<Exchange>& exchanges) {
  std::string text;
  for (const Exchange& exchange : exchanges) {
    if (exchange.ranks.size() <= 1) continue;
    text += fmt::format("  {:<21} {}: {}\n", exchange.name, rank_list(exchange.ranks),
                        exchange.what);
  }
  return text;
}

/// Ranks before and behind in the pipeline; with chunks the last stage goes on at the
/// first.
std::string pipeline_report(const train::RunConfig& config, const comm::GridShape& grid,
                            std::int64_t rank) {
  const std::int64_t stages = grid.degree(Axis::kPipeline);
  if (stages == 1) return "";
  const std::int64_t stage = grid.coordinate(rank, Axis::kPipeline);
  const std::int64_t size = grid.ranks() / stages;
  const bool ring = config.parallel.chunks > 1;
  const auto neighbour = [&](std::int64_t other) {
    const bool exists = ring || (other >= 0 && other < stages);
    return exists ? fmt::format("{}", (other + stages) % stages * size + rank % size)
                  : std::string("none");
  };
  return fmt::format("  {:<21} from {}, to {}: activations; gradients go back\n",
                     "pipeline", neighbour(stage - 1), neighbour(stage + 1));
}

}  // namespace

std::string rank_list(const std::vector<std::int64_t>& ranks) {
  constexpr std::size_t kWrittenOut = 4;
  if (ranks.size() <= kWrittenOut) return fmt::format("{}", fmt::join(ranks, ", "));
  return fmt::format("{}, {}, ..., {} ({} ranks)", ranks[0], ranks[1], ranks.back(),
                     ranks.size());
}

std::string grid_summary(const comm::GridShape& grid) {
  const auto line = [&](const char* layers, const Axes& axes) {
    std::string text = fmt::format("  {:<10}", layers);
    for (const Axis axis : axes)
      text += fmt::format(" {} {}", comm::axis_name(axis), grid.degree(axis));
    return text + "\n";
  };
  return fmt::format("mapping: {} {}\n", grid.ranks(),
                     grid.ranks() == 1 ? "rank" : "ranks") +
         line("attention", comm::kAttentionAxes) + line("MoE", comm::kMoeAxes);
}

std::string stage_report(const train::RunConfig& config, const comm::GridShape& grid) {
  const std::int64_t stages = grid.degree(Axis::kPipeline);
  const std::int64_t micro_batches =
      train::micro_batches_per_rank(config, grid.degree(Axis::kData));
  std::string text =
      fmt::format("stages: {} micro-batches per step and data rank\n", micro_batches);
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const model::Placement p =
        train::placement_of(config, grid, stage * (grid.ranks() / stages));
    const std::int64_t depth = train::pipeline_depth(
        stages, stage, config.parallel.chunks, micro_batches);
    text += fmt::format("  stage {:<3} layers {}{}{}; {} in flight\n", stage,
                        layer_list(p.chunks), p.has_embedding ? "; embedding" : "",
                        p.has_head ? "; head" : "", depth);
  }
  return text;
}

std::string rank_report(const train::RunConfig& config, const comm::GridShape& grid,
                        std::int64_t rank) {
  const bool sharded = config.parallel.sharding == plan::Sharding::kParameters;
  const std::string state =
      sharded ? "; their weights and moments are split" : "; their moments are split";
  std::string text = fmt::format("rank {}: attention {} | MoE {}\n", rank,
                                 coordinates(grid, rank, comm::kAttentionAxes),
                                 coordinates(grid, rank, comm::kMoeAxes));
  text += holdings(config, grid, rank) + pipeline_report(config, grid, rank) +
          exchange_lines({{"tied embedding", tied_ends(config, grid, rank),
                           "gradients of the embedding, which is also the head"}}) +
          exchange_lines(attention_exchanges(config, grid, rank, state));
  if (config.model.has_moe_layers())
    text += exchange_lines(moe_exchanges(config, grid, rank, state));
  std::vector<std::int64_t> world(static_cast<std::size_t>(grid.ranks()));
  std::iota(world.begin(), world.end(), 0);
  text += exchange_lines(
      {{"world", world, "losses, expert loads, gradient norm, whether to stop"}});
  return text;
}

}  // namespace pleat::cli
