// SPDX-License-Identifier: Apache-2.0
#include "mappings.hpp"

#include <fmt/format.h>

#include "legality.hpp"
#include "pleat/base/random.hpp"

namespace pleat::test {
namespace {

train::RunConfig small_run() {
  train::RunConfig config;
  config.run.steps = 3;
  config.run.seed = 7;
  config.batch = {.sequence = 32, .micro = 2, .global = 8};
  // AdamW divides by the size of each gradient element, so the rounding of elements near its
  // eps becomes a difference of weights of about lr * rounding / eps.
  config.optimizer.lr = 1.0e-3;
  config.optimizer.warmup = 1;
  config.precision.compute = train::Precision::kFp64;
  config.model.layers = 4;
  config.model.hidden = 24;
  config.model.heads = 8;
  config.model.kv_heads = 2;
  config.model.head_dim = 8;
  config.model.vocab = 53;
  config.model.init_std = 0.2;
  config.model.moe.experts = 8;
  config.model.moe.ffn = 16;
  config.model.moe.auxiliary_coefficient = 0.01;
  config.model.moe.z_coefficient = 0.001;
  config.model.moe_layer = std::vector<bool>(4, true);
  return config;
}

/// Several chunks are interleaved. Where there are more virtual stages than layers, the layers
/// go to the stages in turn and to ever later chunks, so that no stage is empty.
void set_chunks(const plan::ModelConfig& model, std::int64_t chunks,
                train::ParallelSection& parallel) {
  parallel.chunks = chunks;
  parallel.schedule = chunks == 1 ? plan::PipelineSchedule::kOneForwardOneBackward
                                  : plan::PipelineSchedule::kInterleaved;
  parallel.layout.clear();
  const std::int64_t stages = parallel.pipeline * chunks;
  if (chunks == 1 || stages <= model.layers) return;
  parallel.layout.resize(static_cast<std::size_t>(stages), 0);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::int64_t chunk = layer * chunks / model.layers;
    const std::int64_t stage = chunk * parallel.pipeline + layer % parallel.pipeline;
    ++parallel.layout[static_cast<std::size_t>(stage)];
  }
}

/// What a mapping is run with besides its degrees, by its number: each option is drawn by
/// itself, so that any combination may occur.
void choose_options(std::size_t number, train::RunConfig& config) {
  using namespace plan;
  const CounterRandom random(static_cast<std::uint64_t>(config.model.family), number);
  const auto draw = [&](std::uint64_t option, std::uint64_t choices) {
    return static_cast<std::int64_t>(random.bits64(option) % choices);
  };
  train::ParallelSection& parallel = config.parallel;
  if (draw(0, 2) == 1) parallel.dispatcher = DispatcherKind::kAllGather;
  if (draw(1, 2) == 1) parallel.context_exchange = ContextExchange::kAllGather;
  if (draw(2, 4) == 0) parallel.sharding = Sharding::kParameters;
  constexpr Recompute kModes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  config.precision.recompute = kModes[draw(3, 3)];
  parallel.overlap = draw(6, 4) != 0;
  if (parallel.pipeline == 1) return;
  set_chunks(config.model, 1 + draw(4, 3), parallel);
  // Uneven: the last stage has one layer.
  if (parallel.pipeline == 2 && parallel.chunks == 1 && draw(5, 2) == 1) {
    parallel.layout = {config.model.layers - 1, 1};
  }
}

}  // namespace

train::RunConfig small_mixtral() {
  train::RunConfig config = small_run();
  config.model.family = plan::Family::kMixtral;
  config.model.moe.top_k = 2;
  return config;
}

train::RunConfig small_qwen2_moe() {
  train::RunConfig config = small_run();
  config.model.family = plan::Family::kQwen2Moe;
  config.model.qkv_bias = true;
  config.model.tied = true;
  config.model.ffn = 40;
  config.model.moe.top_k = 3;
  config.model.moe.normalize = false;
  config.model.moe.shared_ffn = 24;
  config.model.moe.shared_gate = true;
  config.model.moe.auxiliary_scope = plan::AuxiliaryScope::kSequence;
  config.model.moe_layer[1] = false;
  return config;
}

train::RunConfig cut_for(train::RunConfig config, std::int64_t ranks) {
  if (ranks % 3 != 0) return config;
  config.batch.sequence = 24;
  config.model.heads = 6;
  // Three: two tensor ranks cannot share them, six have two copies of each.
  config.model.kv_heads = config.model.family == plan::Family::kMixtral ? 3 : 6;
  config.model.moe.experts = 6;
  config.model.moe.ffn = 12;
  if (config.model.has_dense_layers()) config.model.ffn = 36;
  return config;
}

std::vector<train::RunConfig> all_mappings(const train::RunConfig& config,
                                           std::int64_t ranks) {
  std::vector<train::RunConfig> legal;
  const auto divides = [](std::int64_t d, std::int64_t n) { return n % d == 0; };
  for (std::int64_t pp = 1; pp <= ranks; ++pp) {
    if (!divides(pp, ranks)) continue;
    const std::int64_t stage = ranks / pp;
    for (std::int64_t cp = 1; cp <= stage; ++cp) {
      for (std::int64_t tp = 1; tp <= stage; ++tp) {
        if (!divides(cp * tp, stage)) continue;
        for (std::int64_t ep = 1; ep <= stage; ++ep) {
          for (std::int64_t etp = 1; etp <= stage; ++etp) {
            if (!divides(ep * etp, stage)) continue;
            train::RunConfig mapped = config;
            mapped.parallel.pipeline = pp;
            mapped.parallel.context = cp;
            mapped.parallel.tensor = tp;
            mapped.parallel.expert = ep;
            mapped.parallel.expert_tensor = etp;
            if (!is_legal(mapped, ranks)) continue;
            choose_options(legal.size(), mapped);
            legal.push_back(mapped);
          }
        }
      }
    }
  }
  return legal;
}

std::vector<train::RunConfig> all_options(const train::RunConfig& config,
                                          std::int64_t ranks) {
  using namespace plan;
  std::vector<train::RunConfig> chosen;
  for (const train::RunConfig& mapping : all_mappings(config, ranks)) {
    for (const auto dispatcher : {DispatcherKind::kAllToAll, DispatcherKind::kAllGather}) {
      for (const auto exchange : {ContextExchange::kRing, ContextExchange::kAllGather}) {
        if (mapping.parallel.context == 1 && exchange != ContextExchange::kRing) continue;
        for (const std::int64_t chunks : {1, 2, 3}) {
          if (mapping.parallel.pipeline == 1 && chunks != 1) continue;
          train::RunConfig option = mapping;
          option.parallel.dispatcher = dispatcher;
          option.parallel.context_exchange = exchange;
          set_chunks(option.model, chunks, option.parallel);
          chosen.push_back(std::move(option));
        }
      }
    }
  }
  return chosen;
}

std::string mapping_text(const train::RunConfig& config, std::int64_t ranks) {
  const train::ParallelSection& p = config.parallel;
  return fmt::format(
      "{} ranks: parallel.pipeline={} parallel.context={} parallel.tensor={} "
      "parallel.expert={} parallel.expert_tensor={} dispatcher {} exchange {} chunks {} "
      "layout [{}] sharding {} recompute {} overlap {}",
      ranks, p.pipeline, p.context, p.tensor, p.expert, p.expert_tensor,
      static_cast<int>(p.dispatcher), static_cast<int>(p.context_exchange), p.chunks,
      fmt::join(p.layout, ","), static_cast<int>(p.sharding),
      static_cast<int>(config.precision.recompute), p.overlap);
}

void RaggedTokens::fill_sample(std::uint64_t sample, std::int64_t row,
                               const io::HostBatch& batch) const {
  const CounterRandom random(seed_, sample);
  const auto length = static_cast<std::int64_t>(batch.tokens_BS.extent(1));
  // A third of the samples ends early, a sixth carries no loss.
  const auto kind = static_cast<int>(6.0 * random.uniform(0));
  const std::int64_t real =
      kind < 2 ? 1 + static_cast<std::int64_t>(random.uniform(1) * static_cast<double>(length - 1))
               : length;
  for (std::int64_t s = 0; s < length; ++s) {
    const auto at = [&](std::int64_t i) {
      return static_cast<std::int32_t>(random.uniform(static_cast<std::uint64_t>(2 + 3 * i)) *
                                       static_cast<double>(vocab_));
    };
    batch.tokens_BS(row, s) = at(s);
    batch.labels_BS(row, s) = at(s + 1);
    batch.real_BS(row, s) = s < real ? 1 : 0;
    const bool wanted = random.uniform(static_cast<std::uint64_t>(3 + 3 * s)) < 0.7;
    batch.loss_mask_BS(row, s) = s < real && wanted && kind != 5 ? 1 : 0;
  }
}

void RaggedTokens::training_batch(std::int64_t first, const io::HostBatch& batch) const {
  for (std::size_t row = 0; row < batch.tokens_BS.extent(0); ++row) {
    fill_sample(static_cast<std::uint64_t>(first) + row, static_cast<std::int64_t>(row), batch);
  }
}

void RaggedTokens::validation_batch(std::int64_t first, const io::HostBatch& batch) const {
  training_batch((std::int64_t{1} << 40) + first, batch);
}

}  // namespace pleat::test
