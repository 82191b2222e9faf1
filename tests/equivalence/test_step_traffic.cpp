// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief What a rank sends in one training step, by group and kind of exchange, against the
/// formulas of docs/dispatcher.md ("A step"). The dispatch itself is in tests/dispatch.

#include <algorithm>
#include <map>
#include <utility>

#include <gtest/gtest.h>

#include "mappings.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/grid_choice.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

using comm::Axis;
using comm::Exchange;
using comm::GroupName;
using comm::Traffic;
using Expected = std::map<std::pair<GroupName, Exchange>, Traffic::Entry>;

constexpr double kElement = sizeof(double);

/// Counts of a stage, and the sizes that its exchanges have.
struct Stage {
  const train::RunConfig& config;
  const comm::Grid& grid;
  const model::Placement& placement;

  double degree(Axis axis) const { return static_cast<double>(grid.degree(axis)); }
  double rounds() const {
    const auto micro_batches =
        static_cast<double>(config.batch.global) / static_cast<double>(config.batch.micro);
    return std::ceil(micro_batches / degree(Axis::kData));
  }
  double gathered_tokens() const {  // U
    return static_cast<double>(config.batch.micro * config.batch.sequence) /
           degree(Axis::kContext);
  }
  double row_bytes() const {  // T D b
    return gathered_tokens() / degree(Axis::kTensor) * static_cast<double>(config.model.hidden) *
           kElement;
  }
  double layers() const { return count([](bool) { return true; }); }
  double moe_layers() const { return count([](bool is_moe) { return is_moe; }); }
  /// Feed-forwards that are split over tp: of dense layers, and shared experts.
  double split_feed_forwards() const {
    const double dense = count([](bool is_moe) { return !is_moe; });
    return dense + (config.model.moe.shared_ffn > 0 ? moe_layers() : 0.0);
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

void add(Expected& expected, GroupName group, Exchange exchange, double calls, double bytes) {
  if (calls == 0.0) return;
  Traffic::Entry& entry = expected[{group, exchange}];
  entry.calls += static_cast<std::int64_t>(calls);
  entry.bytes += calls * bytes;
}

/// Of n bytes over p ranks.
double all_reduce_bytes(double p, double n) { return 2.0 * (p - 1.0) / p * n; }

void add_tensor(const Stage& stage, Expected& expected) {
  const double p = stage.degree(Axis::kTensor);
  if (p == 1.0) return;
  const double split = stage.layers() + stage.split_feed_forwards();
  const double first = stage.placement.has_embedding ? 1.0 : 0.0;
  const double last = stage.placement.has_head ? 1.0 : 0.0;
  const double each = (p - 1.0) * stage.row_bytes();
  const double j = stage.rounds();
  add(expected, GroupName::kTensor, Exchange::kAllGather, j * (3.0 * split + first + last), each);
  add(expected, GroupName::kTensor, Exchange::kReduceScatter, j * (2.0 * split + first + last),
      each);
  const double u = stage.gathered_tokens() * kElement;
  add(expected, GroupName::kTensor, Exchange::kAllReduce, j * last, all_reduce_bytes(p, u));
  add(expected, GroupName::kTensor, Exchange::kAllReduce, j * last, all_reduce_bytes(p, 2.0 * u));
}

void add_context(const Stage& stage, Expected& expected) {
  const double p = stage.degree(Axis::kContext);
  if (p == 1.0) return;
  const double kv = stage.gathered_tokens() * 2.0 *
                    static_cast<double>(stage.placement.part.kv_heads *
                                        stage.placement.part.head_dim) *
                    kElement;
  const double calls = stage.rounds() * stage.layers();
  if (stage.config.parallel.context_exchange == plan::ContextExchange::kRing) {
    add(expected, GroupName::kContext, Exchange::kSend, calls * (3.0 * p - 2.0), kv);
    return;
  }
  add(expected, GroupName::kContext, Exchange::kAllGather, 2.0 * calls, (p - 1.0) * kv);
  add(expected, GroupName::kContext, Exchange::kReduceScatter, calls, (p - 1.0) * kv);
}

void add_statistics(const Stage& stage, Expected& expected) {
  const double p = stage.degree(Axis::kContext) * stage.degree(Axis::kTensor);
  if (p == 1.0) return;
  const plan::MoeConfig& moe = stage.config.model.moe;
  const double groups = moe.auxiliary_scope == plan::AuxiliaryScope::kSequence
                            ? static_cast<double>(stage.config.batch.micro)
                            : 1.0;
  const double bytes = groups * (2.0 * static_cast<double>(moe.experts) + 2.0) * kElement;
  add(expected, GroupName::kContextTensor, Exchange::kAllReduce,
      stage.rounds() * stage.moe_layers(), all_reduce_bytes(p, bytes));
}

void add_pipeline(const Stage& stage, Expected& expected) {
  if (stage.degree(Axis::kPipeline) == 1.0) return;
  const auto chunks = static_cast<double>(stage.placement.chunks.size());
  const double outputs = chunks - (stage.placement.has_head ? 1.0 : 0.0);
  const double inputs = chunks - (stage.placement.has_embedding ? 1.0 : 0.0);
  add(expected, GroupName::kPipeline, Exchange::kSend, stage.rounds() * (outputs + inputs),
      stage.row_bytes());
}

void add_parameters(const tensor::ParameterLayout& layout, Expected& expected) {
  for (const tensor::Bucket& bucket : layout.buckets()) {
    if (bucket.shards == 1) continue;
    const GroupName group =
        bucket.group == tensor::Group::kDense
            ? GroupName::kDataContext
            : (bucket.group == tensor::Group::kReplicated ? GroupName::kDataContextTensor
                                                          : GroupName::kExpertData);
    const double bytes = static_cast<double>((bucket.shards - 1) * bucket.shard_size()) * kElement;
    add(expected, group, Exchange::kReduceScatter, 1.0, bytes);
    add(expected, group, Exchange::kAllGather, 1.0, bytes);
  }
}

void add_scalars(const Stage& stage, Expected& expected) {
  const double data = stage.degree(Axis::kData);
  if (data > 1.0) {  // valid tokens
    add(expected, GroupName::kData, Exchange::kAllReduce, 1.0, all_reduce_bytes(data, 8.0));
  }
  const auto world = static_cast<double>(stage.grid.shape().ranks());
  const auto layers = static_cast<double>(stage.config.model.layers);
  const auto experts = static_cast<double>(stage.config.model.moe.experts);
  add(expected, GroupName::kWorld, Exchange::kAllReduce, 1.0, all_reduce_bytes(world, 8.0));
  add(expected, GroupName::kWorld, Exchange::kAllReduce, 1.0,
      all_reduce_bytes(world, (2.0 + layers * (2.0 + experts)) * 8.0));
}

using Counters = std::array<Traffic, comm::kGroups>;

Counters counters(const comm::Grid& grid) {
  Counters all;
  for (std::size_t g = 0; g < comm::kGroups; ++g) {
    all[g] = grid.group(static_cast<GroupName>(g)).traffic();
  }
  return all;
}

void expect_traffic(const train::RunConfig& config, std::int64_t ranks) {
  const comm::Grid grid(world(), train::grid_shape_of(config, ranks));
  train::Engine<double> engine(config, grid);
  engine.initialise();
  const RaggedTokens data(config.model.vocab, config.run.seed);
  const Counters before = counters(grid);
  engine.train_step(1, 1e-3, data, 0);
  const Counters after = counters(grid);

  const Stage stage{config, grid, engine.placement()};
  Expected expected;
  add_tensor(stage, expected);
  add_context(stage, expected);
  add_statistics(stage, expected);
  add_pipeline(stage, expected);
  add_parameters(engine.store().layout(), expected);
  add_scalars(stage, expected);
  for (std::size_t g = 0; g < comm::kGroups; ++g) {
    const auto group = static_cast<GroupName>(g);
    if (group == GroupName::kExpert || group == GroupName::kExpertTensor ||
        group == GroupName::kDispatch) {
      continue;
    }
    for (std::size_t e = 0; e < comm::kExchanges; ++e) {
      const Traffic::Entry& wanted = expected[{group, static_cast<Exchange>(e)}];
      EXPECT_EQ(after[g].entries[e].calls - before[g].entries[e].calls, wanted.calls)
          << comm::group_name(group) << " " << comm::exchange_name(static_cast<Exchange>(e));
      EXPECT_NEAR(after[g].entries[e].bytes - before[g].entries[e].bytes, wanted.bytes, 1e-6)
          << comm::group_name(group) << " " << comm::exchange_name(static_cast<Exchange>(e));
    }
  }
}

TEST(StepTraffic, IsWhatTheFormulasSay) {
  int ranks = 0;
  MPI_Comm_size(world(), &ranks);
  for (train::RunConfig config : {small_mixtral(), small_qwen2_moe()}) {
    for (train::RunConfig mapping : all_mappings(config, ranks)) {
      mapping.parallel.sharding = plan::Sharding::kOptimizer;
      mapping.precision.recompute = plan::Recompute::kNone;
      SCOPED_TRACE(mapping_text(mapping, ranks));
      expect_traffic(mapping, ranks);
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace pleat::test
