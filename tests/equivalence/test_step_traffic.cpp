// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief What a rank sends in one training step, by group and kind of exchange, against
/// the formulas of docs/dispatcher.md ("A step"), over every mapping with everything that
/// repeats or adds exchanges: recomputation, sharded parameters, copies of parameters,
/// scopes. How many bytes the all-to-all dispatcher sends depends on the choices:
/// tests/dispatch has it.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "mappings.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/grid_choice.hpp"
#include "pleat/train/pipeline_schedule.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

using comm::Axis;
using comm::Exchange;
using comm::GroupName;
using comm::Traffic;

/// Calls and bytes by label of the group and exchange.
using Sent = std::map<std::pair<std::string, Exchange>, Traffic::Entry>;

/// Bytes of the numbers that travel.
struct NumberBytes {
  double element = 0.0;   ///< b: activations and weights
  double gradient = 0.0;  ///< g: gradients of weights
  double wide = 0.0;      ///< a: router weights, softmax
};

template <class T>
constexpr NumberBytes kBytesOf{sizeof(T), sizeof(Gradient<T>), sizeof(Accumulator<T>)};

/// Counts of a stage, and the sizes that its exchanges have.
struct Stage {
  const train::RunConfig& config;
  const comm::Grid& grid;
  const model::Placement& placement;
  const tensor::ParameterLayout& layout;
  NumberBytes bytes;

  double degree(Axis axis) const { return static_cast<double>(grid.degree(axis)); }
  std::int64_t whole_rounds() const {
    return train::micro_batches_per_rank(config, grid.degree(Axis::kData));
  }
  double rounds() const { return static_cast<double>(whole_rounds()); }  // J
  double gathered_tokens() const {                                       // U
    return static_cast<double>(config.batch.micro * config.batch.sequence) /
           degree(Axis::kContext);
  }
  double tokens() const { return gathered_tokens() / degree(Axis::kTensor); }  // T
  double row_bytes() const {                                                   // T D b
    return tokens() * static_cast<double>(config.model.hidden) * bytes.element;
  }
  double layers() const {
    return count([](bool) { return true; });
  }
  double moe_layers() const {
    return count([](bool is_moe) { return is_moe; });
  }
  /// Feed-forwards that are split over tp: of dense layers, and shared experts.
  double split_feed_forwards() const {
    const double dense = count([](bool is_moe) { return !is_moe; });
    return dense + (config.model.moe.shared_ffn > 0 ? moe_layers() : 0.0);
  }
  bool again() const { return config.precision.recompute == plan::Recompute::kFull; }
  bool inner_again() const {
    return config.precision.recompute != plan::Recompute::kNone;
  }
  bool is_sharded() const {
    return config.parallel.sharding == plan::Sharding::kParameters;
  }
  bool is_layer(std::int64_t unit) const {
    return unit > model::embedding_unit() && unit < model::head_unit(config.model);
  }
  template <class Wanted>
  double count(const Wanted& wanted) const {
    double sum = 0.0;
    for (const model::Slice& chunk : placement.chunks) {
      for (std::int64_t l = chunk.first; l < chunk.end(); ++l) {
        sum += wanted(config.model.moe_layer[static_cast<std::size_t>(l)]) ? 1.0 : 0.0;
      }
    }
    return sum;
  }
};

/// A group of one sends nothing.
void add(Sent& sent, const std::string& group, Exchange exchange, double calls,
         double bytes) {
  if (calls == 0.0) return;
  Traffic::Entry& entry = sent[{group, exchange}];
  entry.calls += static_cast<std::int64_t>(calls);
  entry.bytes += calls * bytes;
}

/// Of n bytes over p ranks.
double all_reduce_bytes(double p, double n) { return 2.0 * (p - 1.0) / p * n; }

void add_tensor(const Stage& stage, Sent& sent) {
  const double p = stage.degree(Axis::kTensor);
  if (p == 1.0) return;
  const double split = stage.layers() + stage.split_feed_forwards();
  const double ends = (stage.placement.has_embedding ? 1.0 : 0.0) +
                      (stage.placement.has_head ? 1.0 : 0.0);
  const double repeated = stage.again() ? split : 0.0;
  const double each = (p - 1.0) * stage.row_bytes();
  const double j = stage.rounds();
  add(sent, "tensor", Exchange::kAllGather, j * (3.0 * split + repeated + ends), each);
  add(sent, "tensor", Exchange::kReduceScatter, j * (2.0 * split + repeated + ends),
      each);
  if (!stage.placement.has_head) return;
  const double u = stage.gathered_tokens() * stage.bytes.wide;
  add(sent, "tensor", Exchange::kAllReduce, j, all_reduce_bytes(p, u));
  add(sent, "tensor", Exchange::kAllReduce, j, all_reduce_bytes(p, 2.0 * u));
}

void add_context(const Stage& stage, Sent& sent) {
  const double p = stage.degree(Axis::kContext);
  if (p == 1.0) return;
  const double kv =
      stage.gathered_tokens() * 2.0 *
      static_cast<double>(stage.placement.part.kv_heads * stage.placement.part.head_dim) *
      stage.bytes.element;
  const double calls = stage.rounds() * stage.layers();
  const double passes = stage.inner_again() ? 3.0 : 2.0;  // of the attention core's keys
  if (stage.config.parallel.context_exchange == plan::ContextExchange::kRing) {
    add(sent, "context", Exchange::kSend, calls * (passes * (p - 1.0) + p), kv);
    return;
  }
  add(sent, "context", Exchange::kAllGather, passes * calls, (p - 1.0) * kv);
  add(sent, "context", Exchange::kReduceScatter, calls, (p - 1.0) * kv);
}

void add_statistics(const Stage& stage, Sent& sent) {
  const plan::MoeConfig& moe = stage.config.model.moe;
  if (moe.auxiliary_coefficient == 0.0 && moe.z_coefficient == 0.0) return;
  const bool global = moe.auxiliary_scope == plan::AuxiliaryScope::kGlobalBatch;
  const double p = stage.degree(Axis::kContext) * stage.degree(Axis::kTensor) *
                   (global ? stage.degree(Axis::kData) : 1.0);
  if (p == 1.0) return;
  const double groups = moe.auxiliary_scope == plan::AuxiliaryScope::kSequence
                            ? static_cast<double>(stage.config.batch.micro)
                            : 1.0;
  const double bytes = groups * (2.0 * static_cast<double>(moe.experts) + 2.0) * 8.0;
  add(sent, global ? "data*context*tensor" : "context*tensor", Exchange::kAllReduce,
      stage.rounds() * stage.moe_layers(), all_reduce_bytes(p, bytes));
}

/// Choices, and their weights where these decide what is dropped.
void add_dropping(const Stage& stage, Sent& sent) {
  const plan::MoeConfig& moe = stage.config.model.moe;
  const double p = stage.degree(Axis::kContext) * stage.degree(Axis::kTensor);
  if (!moe.drop.active() || moe.drop.scope != plan::DropScope::kSequence || p == 1.0)
    return;
  const double calls = stage.rounds() * stage.moe_layers() * (stage.again() ? 2.0 : 1.0);
  const double pairs = (p - 1.0) * stage.tokens() * static_cast<double>(moe.top_k);
  add(sent, "context*tensor", Exchange::kAllGather, calls, pairs * 4.0);
  if (moe.drop.policy == plan::DropPolicy::kProbs)
    add(sent, "context*tensor", Exchange::kAllGather, calls, pairs * stage.bytes.wide);
}

/// Calls only: rows go where the choices send them.
void add_all_to_all(const Stage& stage, Sent& sent) {
  const double calls = stage.rounds() * stage.moe_layers();
  const double inner = stage.inner_again() ? 1.0 : 0.0;
  const double outer = stage.again() ? 1.0 : 0.0;
  const double p = stage.degree(Axis::kExpert) * stage.degree(Axis::kExpertTensor);
  add(sent, "expert*expert_tensor", Exchange::kAllGather, calls * (1.0 + outer),
      (p - 1.0) * 8.0 * (static_cast<double>(stage.config.model.moe.experts) + 1.0));
  if (stage.degree(Axis::kExpert) > 1.0) {
    add(sent, "expert", Exchange::kAllToAll, calls * (7.0 + inner + 2.0 * outer), 0.0);
  }
  if (stage.degree(Axis::kExpertTensor) > 1.0) {
    add(sent, "expert_tensor", Exchange::kAllGather, calls * (4.0 + inner + outer), 0.0);
    add(sent, "expert_tensor", Exchange::kReduceScatter, calls * (3.0 + outer), 0.0);
  }
}

void add_dispatch(const Stage& stage, Sent& sent) {
  const double p = stage.degree(Axis::kExpert) * stage.degree(Axis::kExpertTensor);
  if (p == 1.0 || stage.moe_layers() == 0.0) return;
  if (stage.config.parallel.dispatcher == plan::DispatcherKind::kAllToAll) {
    return add_all_to_all(stage, sent);
  }
  const double calls = stage.rounds() * stage.moe_layers();
  const double inner = stage.inner_again() ? 1.0 : 0.0;
  const double outer = stage.again() ? 1.0 : 0.0;
  const double pairs =
      (p - 1.0) * stage.tokens() * static_cast<double>(stage.config.model.moe.top_k);
  const double rows = (p - 1.0) * stage.row_bytes();
  const auto gathers = [&](double each, double bytes) {
    add(sent, "expert*expert_tensor", Exchange::kAllGather, calls * each, bytes);
  };
  const auto scatters = [&](double each, double bytes) {
    add(sent, "expert*expert_tensor", Exchange::kReduceScatter, calls * each, bytes);
  };
  gathers(1.0 + outer, (p - 1.0) * 8.0);
  gathers(1.0 + outer, pairs * 4.0);
  gathers(1.0 + outer, pairs * stage.bytes.wide);
  gathers(3.0 + inner, rows);
  scatters(2.0 + outer, rows);
  scatters(1.0, pairs * stage.bytes.wide);
}

void add_pipeline(const Stage& stage, Sent& sent) {
  if (stage.degree(Axis::kPipeline) == 1.0) return;
  const auto chunks = static_cast<double>(stage.placement.chunks.size());
  const double outputs = chunks - (stage.placement.has_head ? 1.0 : 0.0);
  const double inputs = chunks - (stage.placement.has_embedding ? 1.0 : 0.0);
  add(sent, "pipeline", Exchange::kSend, stage.rounds() * (outputs + inputs),
      stage.row_bytes());
}

/// How often each layer is gathered: whenever it is at work after another one was.
std::map<std::int64_t, double> gathers_by_layer(const Stage& stage) {
  std::map<std::int64_t, double> gathers;
  std::int64_t present = -1;
  const auto visit = [&](std::int64_t layer) {
    if (layer != present) gathers[layer] += 1.0;
    present = layer;
  };
  const comm::Grid& grid = stage.grid;
  for (const train::PipelineTask& task : train::pipeline_tasks(
           grid.degree(Axis::kPipeline), grid.coordinate(Axis::kPipeline),
           static_cast<std::int64_t>(stage.placement.chunks.size()),
           stage.whole_rounds())) {
    const model::Slice& chunk =
        stage.placement.chunks[static_cast<std::size_t>(task.chunk)];
    for (std::int64_t i = 0; i < chunk.count; ++i) {
      visit(task.work == train::Work::kForward ? chunk.first + i : chunk.end() - 1 - i);
    }
  }
  return gathers;
}

const char* group_of(tensor::Group group) {
  if (group == tensor::Group::kDense) return "data*context";
  return group == tensor::Group::kReplicated ? "data*context*tensor" : "expert_data";
}

void add_parameters(const Stage& stage, Sent& sent) {
  auto gathers = gathers_by_layer(stage);
  for (const tensor::Bucket& bucket : stage.layout.buckets()) {
    if (bucket.shards == 1) continue;
    const bool sharded = stage.is_sharded() && stage.is_layer(bucket.unit);
    const auto others = static_cast<double>((bucket.shards - 1) * bucket.shard_size());
    add(sent, group_of(bucket.group), Exchange::kReduceScatter,
        sharded ? stage.rounds() : 1.0, others * stage.bytes.gradient);
    add(sent, group_of(bucket.group), Exchange::kAllGather,
        sharded ? gathers[bucket.unit - 1] : 1.0, others * stage.bytes.element);
  }
}

/// Parameters of which several ranks of a group have a copy.
void add_copies(const Stage& stage, Sent& sent) {
  const plan::ModelConfig& model = stage.config.model;
  const double copies = stage.degree(Axis::kTensor) / static_cast<double>(model.kv_heads);
  if (copies > 1.0) {
    const double calls = stage.layers() * (stage.is_sharded() ? stage.rounds() : 1.0);
    const double head = 2.0 * static_cast<double>(model.head_dim) * stage.bytes.gradient;
    add(sent, "kv copies", Exchange::kAllReduce, calls,
        all_reduce_bytes(copies, head * static_cast<double>(model.hidden)));
    if (model.qkv_bias)
      add(sent, "kv copies", Exchange::kAllReduce, calls, all_reduce_bytes(copies, head));
  }
  const bool end = stage.placement.has_embedding || stage.placement.has_head;
  if (!model.tied || stage.degree(Axis::kPipeline) == 1.0 || !end) return;
  for (const tensor::Bucket& bucket : stage.layout.buckets()) {
    if (bucket.unit != model::embedding_unit()) continue;
    const double bytes = static_cast<double>(bucket.range.size()) * stage.bytes.gradient;
    add(sent, "tied embedding", Exchange::kAllReduce, 1.0, all_reduce_bytes(2.0, bytes));
  }
}

void add_scalars(const Stage& stage, Sent& sent) {
  const double data = stage.degree(Axis::kData);
  if (data > 1.0) {  // valid tokens
    add(sent, "data", Exchange::kAllReduce, 1.0, all_reduce_bytes(data, 8.0));
  }
  const auto world = static_cast<double>(stage.grid.shape().ranks());
  const auto layers = static_cast<double>(stage.config.model.layers);
  const auto experts = static_cast<double>(stage.config.model.moe.experts);
  add(sent, "world", Exchange::kAllReduce, 1.0, all_reduce_bytes(world, 8.0));
  add(sent, "world", Exchange::kAllReduce, 1.0,
      all_reduce_bytes(world, (2.0 + layers * (2.0 + experts)) * 8.0));
}

Sent expected_traffic(const Stage& stage) {
  Sent sent;
  add_tensor(stage, sent);
  add_context(stage, sent);
  add_statistics(stage, sent);
  add_dropping(stage, sent);
  add_dispatch(stage, sent);
  add_pipeline(stage, sent);
  add_parameters(stage, sent);
  add_copies(stage, sent);
  add_scalars(stage, sent);
  return sent;
}

/// What the grid has counted so far, entries without calls left out.
Sent counted(const comm::Grid& grid) {
  Sent sent;
  for (const auto& [label, traffic] : grid.traffic()) {
    for (std::size_t e = 0; e < comm::kExchanges; ++e) {
      if (traffic.entries[e].calls == 0) continue;
      sent[{label, static_cast<Exchange>(e)}] = traffic.entries[e];
    }
  }
  return sent;
}

bool depends_on_choices(const std::string& group) {
  return group == "expert" || group == "expert_tensor";
}

void expect_alike(const Sent& expected, const Sent& before, const Sent& after) {
  std::set<std::pair<std::string, Exchange>> keys;
  for (const Sent* sent : {&expected, &after}) {
    for (const auto& [key, entry] : *sent) keys.insert(key);
  }
  const auto entry_of = [](const Sent& sent, const auto& key) {
    const auto found = sent.find(key);
    return found == sent.end() ? Traffic::Entry{} : found->second;
  };
  for (const auto& key : keys) {
    const Traffic::Entry wanted = entry_of(expected, key);
    const Traffic::Entry first = entry_of(before, key);
    const Traffic::Entry last = entry_of(after, key);
    const std::string where = key.first + " " + comm::exchange_name(key.second);
    EXPECT_EQ(last.calls - first.calls, wanted.calls) << where;
    if (depends_on_choices(key.first)) continue;
    EXPECT_NEAR(last.bytes - first.bytes, wanted.bytes, 1e-6) << where;
  }
}

template <class T>
void expect_traffic(const train::RunConfig& config, std::int64_t ranks) {
  const comm::Grid grid(world(), train::grid_shape_of(config, ranks));
  train::Engine<T> engine(config, grid);
  engine.initialise();
  const RaggedTokens data(config.model.vocab, config.run.seed);
  const Sent before = counted(grid);
  engine.train_step(1, 1e-3, data, 0);
  const Stage stage{config, grid, engine.placement(), engine.store().layout(),
                    kBytesOf<T>};
  expect_alike(expected_traffic(stage), before, counted(grid));
}

/// The two models with what they leave out: other scopes, and dropping over sequences.
std::vector<train::RunConfig> models() {
  train::RunConfig global = small_mixtral();
  global.model.moe.auxiliary_scope = plan::AuxiliaryScope::kGlobalBatch;
  train::RunConfig dropping = small_qwen2_moe();
  dropping.model.moe.drop.capacity_factor = 1.0;
  dropping.model.moe.drop.scope = plan::DropScope::kSequence;
  dropping.model.moe.bias_update_rate = 0.01;
  train::RunConfig by_position = small_mixtral();
  by_position.model.moe.auxiliary_coefficient = 0.0;
  by_position.model.moe.z_coefficient = 0.0;
  by_position.model.moe.drop = {.capacity_factor = 1.5,
                                .scope = plan::DropScope::kSequence,
                                .policy = plan::DropPolicy::kPosition};
  return {small_mixtral(), small_qwen2_moe(), global, dropping, by_position};
}

int world_size() {
  int ranks = 0;
  MPI_Comm_size(world(), &ranks);
  return ranks;
}

/// Every `stride`-th mapping of each model, a different one of each.
template <class T>
void expect_traffic_of_mappings(std::size_t stride) {
  const int ranks = world_size();
  std::size_t number = 0;
  for (const train::RunConfig& model : models()) {
    const auto mappings = all_mappings(model, ranks);
    for (std::size_t m = number++ % stride; m < mappings.size(); m += stride) {
      SCOPED_TRACE(mapping_text(mappings[m], ranks));
      expect_traffic<T>(mappings[m], ranks);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(StepTraffic, IsWhatTheFormulasSay) {
  expect_traffic_of_mappings<double>(world_size() > 4 ? 7 : 1);
}

TEST(StepTraffic, OfNarrowerNumbers) {
  expect_traffic_of_mappings<float>(world_size() > 4 ? 29 : 5);
  expect_traffic_of_mappings<Bf16>(world_size() > 4 ? 29 : 5);
}

// With one layer at a time: J + 1 gathers of the first, J of the last, 2 J of those
// between.
TEST(StepTraffic, ShardedLayersAreGatheredWhenTheirTurnComes) {
  const int ranks = world_size();
  train::RunConfig config = small_mixtral();
  config.parallel.sharding = plan::Sharding::kParameters;
  const comm::Grid grid(world(), train::grid_shape_of(config, ranks));
  const model::Placement placement =
      train::placement_of(config, grid.shape(), grid.rank());
  const auto layout = model::parameter_layout(placement);
  const Stage stage{config, grid, placement, *layout, kBytesOf<double>};
  const double j = stage.rounds();
  EXPECT_EQ(gathers_by_layer(stage),
            (std::map<std::int64_t, double>{{0, j + 1}, {1, 2 * j}, {2, 2 * j}, {3, j}}));
}

}  // namespace
}  // namespace pleat::test
