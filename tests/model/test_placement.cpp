// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief What the ranks hold is the whole model, each element as often as it should be.

#include "pleat/model/placement.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <ostream>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/error.hpp"
#include "pleat/model/parameters.hpp"
#include "pleat/plan/mapping.hpp"

namespace pleat::model {
namespace {

using comm::Axis;
using comm::Degrees;
using comm::GridShape;
using tensor::Bucket;
using tensor::Group;
using tensor::ParameterLayout;
using tensor::ParameterSpec;
using tensor::Shape;
using testing::ElementsAre;

constexpr std::array kGroups{Group::kDense, Group::kReplicated, Group::kExpert};

struct PlacementCase {
  std::string name;
  plan::ModelConfig config;
  Degrees degrees;
  std::int64_t ranks = 1;
  std::vector<std::int64_t> layout;  ///< layers of each virtual stage
};

void PrintTo(const PlacementCase& placement_case, std::ostream* stream) {
  *stream << placement_case.name;
}

/// Every kind of tensor but the shared expert; an odd vocabulary.
plan::ModelConfig moe_model() {
  plan::ModelConfig config;
  config.family = plan::Family::kQwen3Moe;
  config.layers = 4;
  config.hidden = 12;
  config.heads = 8;
  config.kv_heads = 2;
  config.head_dim = 2;
  config.vocab = 23;
  config.qkv_bias = true;
  config.qk_norm = true;
  config.moe_layer = {true, true, true, true};
  config.moe.experts = 8;
  config.moe.ffn = 4;
  config.moe.bias_update_rate = 1e-3;
  return config;
}

/// Dense layers, a gated shared expert, and the embedding as head.
plan::ModelConfig tied_model() {
  plan::ModelConfig config = moe_model();
  config.family = plan::Family::kQwen2Moe;
  config.tied = true;
  config.qk_norm = false;
  config.ffn = 16;
  config.moe_layer = {false, true, false, true};
  config.moe.shared_ffn = 8;
  config.moe.shared_gate = true;
  return config;
}

plan::ModelConfig with_vocab(plan::ModelConfig config, std::int64_t vocab) {
  config.vocab = vocab;
  return config;
}

plan::ModelConfig with_kv_heads(plan::ModelConfig config, std::int64_t kv_heads) {
  config.kv_heads = kv_heads;
  return config;
}

plan::ModelConfig with_experts(plan::ModelConfig config, std::int64_t experts) {
  config.moe.experts = experts;
  return config;
}

std::vector<PlacementCase> placement_cases() {
  const plan::ModelConfig moe = moe_model();
  const plan::ModelConfig tied = tied_model();
  return {
      {"one_rank", moe, {}, 1, {4}},
      {"one_rank_tied", tied, {}, 1, {4}},
      {"data", moe, {}, 2, {4}},
      {"tensor", tied, {.tensor = 2}, 2, {4}},
      {"expert", moe, {.expert = 4}, 4, {4}},
      {"expert_tensor", tied, {.expert = 2, .expert_tensor = 2}, 4, {4}},
      {"folded", moe, {.context = 2, .tensor = 2, .expert = 8}, 8, {4}},
      {"three_by_two",
       with_experts(moe, 6),
       {.tensor = 2, .expert = 3, .expert_tensor = 2},
       6,
       {4}},
      {"kv_copies", moe, {.tensor = 4, .expert = 2, .expert_tensor = 2}, 4, {4}},
      {"one_kv_head", with_kv_heads(tied, 1), {.tensor = 8, .expert = 8}, 8, {4}},
      {"vocabulary_ends_early", with_vocab(moe, 5), {.tensor = 4, .expert = 4}, 8, {4}},
      {"pipeline", moe, {.pipeline = 2}, 2, {2, 2}},
      {"uneven_pipeline", tied, {.pipeline = 4}, 4, {0, 3, 0, 1}},
      {"chunks", moe, {.pipeline = 2, .expert = 2}, 4, {1, 1, 1, 1}},
      {"uneven_chunks", tied, {.pipeline = 2, .tensor = 2}, 4, {1, 2, 0, 1}},
      {"tied_chunks", tied, {.pipeline = 3}, 3, {1, 0, 1, 1, 1, 0}},
      {"all_axes_16",
       moe,
       {.pipeline = 2, .context = 2, .tensor = 2, .expert = 4},
       16,
       {3, 1}},
      {"all_axes_16_tied",
       tied,
       {.pipeline = 2, .context = 2, .tensor = 4, .expert = 2, .expert_tensor = 2},
       16,
       {1, 1, 1, 1}},
      {"tensor_16_of_kv_2",
       with_vocab(tied, 17),
       {.pipeline = 2, .tensor = 8, .expert = 4},
       16,
       {2, 2}},
  };
}

plan::Mapping mapping_of(const PlacementCase& c) {
  return {.pipeline = c.degrees.pipeline,
          .context = c.degrees.context,
          .tensor = c.degrees.tensor,
          .expert = c.degrees.expert,
          .expert_tensor = c.degrees.expert_tensor,
          .chunks = static_cast<std::int64_t>(c.layout.size()) / c.degrees.pipeline,
          .layout = c.layout};
}

/// How many ranks hold each element of each parameter.
class Cover {
 public:
  explicit Cover(const ParameterLayout& whole) {
    for (const ParameterSpec& parameter : whole.parameters()) {
      held_[parameter.name].assign(static_cast<std::size_t>(parameter.local_count()), 0);
    }
  }
  void add(const ParameterSpec& parameter) {
    std::vector<int>& held = held_.at(parameter.name);
    const std::int64_t columns = parameter.global_shape.back();
    const std::int64_t first_row =
        parameter.global_shape.size() > 1 ? parameter.local_offset.front() : 0;
    for (std::int64_t i = 0; i < parameter.local_count(); ++i) {
      const std::int64_t row = first_row + i / parameter.local_shape.back();
      const std::int64_t column =
          parameter.local_offset.back() + i % parameter.local_shape.back();
      ++held.at(static_cast<std::size_t>(row * columns + column));
    }
  }
  void expect_once(const std::string& what) const {
    for (const auto& [name, held] : held_) {
      EXPECT_TRUE(std::all_of(held.begin(), held.end(), [](int n) { return n == 1; }))
          << what << ": " << name << " is held "
          << *std::min_element(held.begin(), held.end()) << " to "
          << *std::max_element(held.begin(), held.end()) << " times";
    }
  }

 private:
  std::map<std::string, std::vector<int>> held_;
};

class PlacementTest : public testing::TestWithParam<PlacementCase> {
 protected:
  PlacementTest() {
    for (std::int64_t rank = 0; rank < GetParam().ranks; ++rank) {
      placements_.push_back(
          make_placement(GetParam().config, shape_, rank, GetParam().layout));
      layouts_.push_back(parameter_layout(placements_.back()));
    }
  }
  std::size_t ranks() const { return placements_.size(); }

  /// The ranks that sum gradients of a group, in the order of their shards.
  std::vector<std::int64_t> summing_ranks(std::size_t rank, Group group) const {
    const auto r = static_cast<std::int64_t>(rank);
    switch (group) {
      case Group::kDense:
        return shape_.group(r, {Axis::kData, Axis::kContext});
      case Group::kReplicated:
        return shape_.group(r, {Axis::kData, Axis::kContext, Axis::kTensor});
      case Group::kExpert:
        return shape_.group(r, {Axis::kExpertData});
    }
    return {};
  }

  const GridShape shape_{GetParam().degrees, GetParam().ranks};
  const std::shared_ptr<const ParameterLayout> whole_ =
      parameter_layout(GetParam().config);
  std::vector<Placement> placements_;
  std::vector<std::shared_ptr<const ParameterLayout>> layouts_;
};

TEST_P(PlacementTest, IsOneThatADeckMayAskFor) {
  EXPECT_NO_THROW(plan::validate(GetParam().config));
  EXPECT_NO_THROW(plan::validate_mapping(GetParam().config, {.sequence = 64},
                                         mapping_of(GetParam())));
}

TEST_P(PlacementTest, WrittenBoxesTileEveryParameter) {
  Cover cover(*whole_);
  for (const auto& layout : layouts_) {
    for (const ParameterSpec& parameter : layout->parameters()) {
      if (parameter.written) cover.add(parameter);
    }
  }
  cover.expect_once("written");
}

// Each rank adds its shard of the counted segments to the norm; the shards with one index
// are one copy of the gradients.
TEST_P(PlacementTest, CountedBoxesOfOneShardIndexAreTheModelOnce) {
  for (const Group group : kGroups) {
    for (std::int64_t index = 0; index < placements_[0].shards.of(group); ++index) {
      Cover cover(*whole_);
      for (const ParameterSpec& parameter : whole_->parameters()) {
        if (parameter.group != group) cover.add(parameter);
      }
      for (std::size_t rank = 0; rank < ranks(); ++rank) {
        if (placements_[rank].shard_index.of(group) != index) continue;
        for (const ParameterSpec& parameter : layouts_[rank]->parameters()) {
          if (parameter.group == group && parameter.counted) cover.add(parameter);
        }
      }
      cover.expect_once("counted in shard " + std::to_string(index));
    }
  }
}

TEST_P(PlacementTest, PartsAreOfTheTensorsOfTheWhole) {
  for (const auto& layout : layouts_) {
    for (const ParameterSpec& parameter : layout->parameters()) {
      const ParameterSpec& known = whole_->at(parameter.name);
      EXPECT_EQ(parameter.global_shape, known.global_shape) << parameter.name;
      EXPECT_EQ(parameter.group, known.group) << parameter.name;
      EXPECT_EQ(parameter.initialisation, known.initialisation) << parameter.name;
      ASSERT_EQ(parameter.local_shape.size(), parameter.global_shape.size());
      for (std::size_t d = 0; d < parameter.local_shape.size(); ++d) {
        EXPECT_GE(parameter.local_offset[d], 0) << parameter.name;
        EXPECT_LE(parameter.local_offset[d] + parameter.local_shape[d],
                  parameter.global_shape[d])
            << parameter.name;
      }
      if (parameter.group == Group::kReplicated) {
        EXPECT_EQ(parameter.local_shape, parameter.global_shape) << parameter.name;
      }
    }
  }
}

TEST_P(PlacementTest, ShardsAreNumberedAsTheRanksOfTheirGroup) {
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    for (const Group group : kGroups) {
      const auto members = summing_ranks(rank, group);
      EXPECT_EQ(placements_[rank].shards.of(group),
                static_cast<std::int64_t>(members.size()));
      EXPECT_EQ(
          members.at(static_cast<std::size_t>(placements_[rank].shard_index.of(group))),
          static_cast<std::int64_t>(rank));
      EXPECT_EQ(placements_[rank].is_first_of(group),
                members.front() == static_cast<std::int64_t>(rank));
    }
  }
}

/// Of the buckets of a group: name, place in its bucket and counting of every parameter.
using Contents = std::vector<std::tuple<std::int64_t, std::string, std::int64_t, bool>>;

Contents contents_of(const ParameterLayout& layout, Group group) {
  Contents contents;
  for (const Bucket& bucket : layout.buckets()) {
    if (bucket.group != group) continue;
    contents.emplace_back(bucket.unit, "", bucket.range.size(), true);
    for (const ParameterSpec& parameter : layout.parameters()) {
      if (parameter.group != group || parameter.offset < bucket.range.begin ||
          parameter.offset >= bucket.range.end)
        continue;
      contents.emplace_back(bucket.unit, parameter.name,
                            parameter.offset - bucket.range.begin, parameter.counted);
    }
  }
  return contents;
}

// What is summed element by element must lie alike on all ranks of the sum.
TEST_P(PlacementTest, RanksThatSumHaveTheSameBuckets) {
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    for (const Group group : kGroups) {
      const Contents own = contents_of(*layouts_[rank], group);
      for (const std::int64_t other : summing_ranks(rank, group)) {
        EXPECT_EQ(contents_of(*layouts_[static_cast<std::size_t>(other)], group), own)
            << "ranks " << rank << " and " << other;
      }
    }
  }
}

TEST_P(PlacementTest, LayersLieOnTheStagesOfTheLayout) {
  const std::int64_t stages = GetParam().degrees.pipeline;
  std::vector<std::int64_t> first(GetParam().layout.size() + 1, 0);
  std::partial_sum(GetParam().layout.begin(), GetParam().layout.end(), first.begin() + 1);
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const Placement& p = placements_[rank];
    const std::int64_t stage =
        shape_.coordinate(static_cast<std::int64_t>(rank), Axis::kPipeline);
    std::set<std::int64_t> layers;
    ASSERT_EQ(p.chunks.size() * static_cast<std::size_t>(stages),
              GetParam().layout.size());
    for (std::size_t c = 0; c < p.chunks.size(); ++c) {
      const std::size_t v =
          c * static_cast<std::size_t>(stages) + static_cast<std::size_t>(stage);
      EXPECT_EQ(p.chunks[c].first, first[v]);
      EXPECT_EQ(p.chunks[c].count, GetParam().layout[v]);
      for (std::int64_t l = first[v]; l < first[v + 1]; ++l) layers.insert(l);
    }
    for (std::int64_t l = 0; l < GetParam().config.layers; ++l) {
      EXPECT_EQ(p.has_layer(l), layers.contains(l));
      EXPECT_EQ(layouts_[rank]->contains("model.layers." + std::to_string(l) +
                                         ".input_layernorm.weight"),
                layers.contains(l));
    }
    EXPECT_EQ(p.has_embedding, stage == 0);
    EXPECT_EQ(p.has_head, stage + 1 == stages);
    EXPECT_EQ(layouts_[rank]->contains("model.norm.weight"), p.has_head);
    EXPECT_EQ(layouts_[rank]->contains("model.embed_tokens.weight"),
              p.has_embedding || (p.has_head && GetParam().config.tied));
  }
}

TEST_P(PlacementTest, QueryHeadsHaveTheirKeysAndValues) {
  const plan::ModelConfig& config = GetParam().config;
  const std::int64_t queries_per_key = config.heads / config.kv_heads;
  for (const Placement& p : placements_) {
    EXPECT_EQ(p.kv_heads.first, p.heads.first / queries_per_key);
    EXPECT_EQ(p.kv_heads.end(), (p.heads.end() - 1) / queries_per_key + 1);
    EXPECT_EQ(p.part.heads, p.heads.count);
    EXPECT_EQ(p.part.kv_heads, p.kv_heads.count);
    EXPECT_EQ(p.kv_replicas * config.kv_heads,
              std::max(config.kv_heads, GetParam().degrees.tensor));
    EXPECT_LT(p.kv_replica, p.kv_replicas);
  }
}

// The layers compute with views whose extents are those of the part.
TEST_P(PlacementTest, FusedViewsSeeThePart) {
  const std::int64_t hidden = GetParam().config.hidden;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const Placement& p = placements_[rank];
    const tensor::FlatTensors<float> weights(layouts_[rank], "pleat::test::weights");
    const ModelTensors<float> views = bind_tensors<float>(p, weights);
    const auto extents = [](const auto& view) {
      std::vector<std::int64_t> result;
      for (std::size_t d = 0; d < view.rank; ++d)
        result.push_back(static_cast<std::int64_t>(view.extent(d)));
      return result;
    };
    const auto at = [&](const std::string& name) {
      return weights.flat(layouts_[rank]->at(name)).data();
    };
    ASSERT_EQ(static_cast<std::int64_t>(views.blocks.size()), p.whole.layers);
    for (std::int64_t l = 0; l < p.whole.layers; ++l) {
      const BlockTensors<float>& block = views.blocks[static_cast<std::size_t>(l)];
      if (!p.has_layer(l)) {
        EXPECT_EQ(block.qkv_QD.size(), 0U);
        continue;
      }
      const std::string layer = "model.layers." + std::to_string(l) + ".";
      EXPECT_THAT(extents(block.qkv_QD), ElementsAre(p.part.qkv_size(), hidden));
      EXPECT_EQ(block.qkv_QD.data() + p.part.q_size() * hidden,
                at(layer + "self_attn.k_proj.weight"));
      EXPECT_THAT(extents(block.out_DO), ElementsAre(hidden, p.part.q_size()));
      if (!p.whole.moe_layer[static_cast<std::size_t>(l)]) {
        EXPECT_THAT(extents(block.dense.w13_2FD), ElementsAre(2 * p.ffn.count, hidden));
        EXPECT_THAT(extents(block.dense.w2_DF), ElementsAre(hidden, p.ffn.count));
        continue;
      }
      EXPECT_THAT(extents(block.router_ED), ElementsAre(p.whole.moe.experts, hidden));
      EXPECT_THAT(extents(block.w13_E2FD),
                  ElementsAre(p.experts.count, 2 * p.expert_ffn.count, hidden));
      EXPECT_THAT(extents(block.w2_EDF),
                  ElementsAre(p.experts.count, hidden, p.expert_ffn.count));
      const std::string last = layer + "mlp.experts." +
                               std::to_string(p.experts.end() - 1) + ".up_proj.weight";
      EXPECT_EQ(block.w13_E2FD.data() + block.w13_E2FD.size(),
                at(last) + p.expert_ffn.count * hidden);
    }
    if (p.has_embedding) {
      EXPECT_THAT(extents(views.embedding_VD), ElementsAre(p.vocab.count, hidden));
    }
    if (p.has_head) {
      EXPECT_THAT(extents(views.head_VD), ElementsAre(p.vocab.count, hidden));
      EXPECT_EQ(views.head_VD.data(),
                at(p.whole.tied ? "model.embed_tokens.weight" : "lm_head.weight"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Model, PlacementTest, testing::ValuesIn(placement_cases()),
                         [](const auto& info) { return info.param.name; });

Placement placement_of(const plan::ModelConfig& config, const Degrees& degrees,
                       std::int64_t ranks, std::int64_t rank,
                       const std::vector<std::int64_t>& layout) {
  return make_placement(config, GridShape(degrees, ranks), rank, layout);
}

TEST(Slices, AreEqualAndTheLastOnesSmaller) {
  const auto counts = [](std::int64_t n, std::int64_t parts) {
    std::vector<std::int64_t> result;
    std::int64_t next = 0;
    for (std::int64_t i = 0; i < parts; ++i) {
      const Slice slice = slice_of(n, parts, i);
      EXPECT_EQ(slice.first, next) << n << " over " << parts;
      next = slice.end();
      result.push_back(slice.count);
    }
    EXPECT_EQ(next, n);
    return result;
  };
  EXPECT_THAT(counts(8, 4), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(counts(23, 4), ElementsAre(6, 6, 6, 5));
  EXPECT_THAT(counts(5, 4), ElementsAre(2, 2, 1, 0));
  EXPECT_THAT(counts(2, 4), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(counts(0, 2), ElementsAre(0, 0));
}

// Eight heads, two key/value heads, four tensor ranks: ranks 0 and 1 share key/value head
// 0, and rank 0 counts it.
TEST(Placement, CopiesKeyValueHeads) {
  const plan::ModelConfig config = moe_model();
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const Placement p = placement_of(config, {.tensor = 4}, 4, rank, {4});
    EXPECT_EQ(p.heads.first, 2 * rank);
    EXPECT_EQ(p.heads.count, 2);
    EXPECT_EQ(p.kv_heads.first, rank / 2);
    EXPECT_EQ(p.kv_heads.count, 1);
    EXPECT_EQ(p.kv_replicas, 2);
    EXPECT_EQ(p.kv_replica, rank % 2);
    const auto layout = parameter_layout(p);
    const ParameterSpec& q = layout->at("model.layers.0.self_attn.q_proj.weight");
    EXPECT_EQ(q.local_offset, (Shape{4 * rank, 0}));
    EXPECT_EQ(q.local_shape, (Shape{4, 12}));
    EXPECT_TRUE(q.counted);
    for (const std::string name : {"k_proj.weight", "v_proj.weight", "k_proj.bias"}) {
      const ParameterSpec& kv = layout->at("model.layers.0.self_attn." + name);
      EXPECT_EQ(kv.local_offset.front(), rank / 2 * 2) << name;
      EXPECT_EQ(kv.local_shape.front(), 2) << name;
      EXPECT_EQ(kv.counted, rank % 2 == 0) << name;
      EXPECT_EQ(kv.written, rank % 2 == 0) << name;
    }
  }
}

TEST(Placement, LaysTheExpertsOutOnTheirOwnGrid) {
  // Rank 5 of EDP 1, EP 4, ETP 2 has experts 4 and 5 and the second half of their ffn.
  const Placement p = placement_of(
      moe_model(), {.tensor = 2, .expert = 4, .expert_tensor = 2}, 8, 5, {4});
  EXPECT_EQ(p.experts.first, 4);
  EXPECT_EQ(p.experts.count, 2);
  EXPECT_EQ(p.expert_ffn.first, 2);
  EXPECT_EQ(p.expert_ffn.count, 2);
  EXPECT_EQ(p.part.moe.ffn, 2);
  EXPECT_EQ(p.part.moe.experts, 8) << "the router knows all of them";
  const auto layout = parameter_layout(p);
  EXPECT_FALSE(layout->contains("model.layers.0.mlp.experts.3.up_proj.weight"));
  EXPECT_FALSE(layout->contains("model.layers.0.mlp.experts.6.up_proj.weight"));
  const ParameterSpec& up = layout->at("model.layers.0.mlp.experts.5.up_proj.weight");
  EXPECT_EQ(up.local_offset, (Shape{2, 0}));
  EXPECT_EQ(up.local_shape, (Shape{2, 12}));
  const ParameterSpec& down = layout->at("model.layers.0.mlp.experts.5.down_proj.weight");
  EXPECT_EQ(down.local_offset, (Shape{0, 2}));
  EXPECT_EQ(down.local_shape, (Shape{12, 2}));
}

TEST(Placement, TheTiedHeadIsACopyThatIsNotCounted) {
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    const Placement p = placement_of(tied_model(), {.pipeline = 3}, 3, rank, {2, 1, 1});
    const auto layout = parameter_layout(p);
    EXPECT_EQ(p.has_tied_copy(), rank == 2);
    EXPECT_FALSE(layout->contains("lm_head.weight"));
    EXPECT_EQ(layout->contains("model.embed_tokens.weight"), rank != 1);
    if (rank == 1) continue;
    const ParameterSpec& embedding = layout->at("model.embed_tokens.weight");
    EXPECT_EQ(embedding.counted, rank == 0);
    EXPECT_EQ(embedding.written, rank == 0);
    const Bucket& bucket = layout->buckets().front();
    EXPECT_EQ(bucket.unit, embedding_unit());
    ASSERT_EQ(bucket.segments.size(), 1U);
    EXPECT_EQ(bucket.segments[0].counted, rank == 0);
  }
  EXPECT_FALSE(make_placement(tied_model()).has_tied_copy())
      << "on one stage they are one";
}

TEST(Placement, OfOneRankIsTheWholeModel) {
  const plan::ModelConfig config = tied_model();
  const auto layout = parameter_layout(make_placement(config));
  // The balancing bias moves by a rule and is not counted among the parameters.
  const std::int64_t biases = 2 * config.moe.experts;
  EXPECT_EQ(layout->global_count(), plan::count_parameters(config).total + biases);
  for (const ParameterSpec& parameter : layout->parameters()) {
    EXPECT_EQ(parameter.local_shape, parameter.global_shape) << parameter.name;
    EXPECT_TRUE(parameter.counted && parameter.written) << parameter.name;
  }
}

TEST(Placement, RefusesALayoutOfOtherLayers) {
  EXPECT_THROW(placement_of(moe_model(), {.pipeline = 2}, 2, 0, {2, 1}), InternalError);
}

}  // namespace
}  // namespace pleat::model
