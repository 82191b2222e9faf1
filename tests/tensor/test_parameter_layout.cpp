// SPDX-License-Identifier: Apache-2.0
#include "pleat/tensor/parameter_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/error.hpp"

namespace pleat::tensor {
namespace {

ParameterSpec spec(std::string name, Shape shape, Group group = Group::kDense) {
  ParameterSpec parameter;
  parameter.name = std::move(name);
  parameter.global_shape = std::move(shape);
  parameter.group = group;
  return parameter;
}

/// \brief Added in the order of a model: embedding, one layer, head.
ParameterLayout small_layout(const ShardCounts& shards = {}) {
  ParameterLayout layout;
  layout.add_block(0, {spec("embedding", {7, 5})});
  layout.add_block(1, {spec("norm", {5}, Group::kReplicated)});
  layout.add_block(1, {spec("q", {4, 5}), spec("k", {2, 5}), spec("v", {2, 5})});
  layout.add_block(1, {spec("q.bias", {4})});
  layout.add_block(1, {spec("out", {5, 4})});
  layout.add_block(1, {spec("router", {3, 5}, Group::kReplicated)});
  layout.add_block(1, {spec("expert.w1", {3, 50}, Group::kExpert)});
  layout.add_block(2, {spec("final_norm", {5}, Group::kReplicated)});
  layout.add_block(2, {spec("head", {7, 5})});
  layout.finalize(shards);
  return layout;
}

TEST(ParameterLayout, TensorsOfABlockLieBackToBack) {
  const ParameterLayout layout = small_layout();
  const std::int64_t q = layout.at("q").offset;
  EXPECT_EQ(q % ParameterLayout::kAlignment, 0);
  EXPECT_EQ(layout.at("k").offset, q + 20);
  EXPECT_EQ(layout.at("v").offset, q + 30);
}

TEST(ParameterLayout, BlocksAreAlignedAndSortedByUnitThenGroupThenDecay) {
  const ParameterLayout layout = small_layout();
  EXPECT_EQ(layout.at("embedding").offset, 0);
  EXPECT_EQ(layout.at("q").offset, 64);
  EXPECT_EQ(layout.at("out").offset, 128) << "decayed before the bias added earlier";
  EXPECT_EQ(layout.at("q.bias").offset, 192);
  EXPECT_EQ(layout.at("router").offset, 256);
  EXPECT_EQ(layout.at("norm").offset, 320);
  EXPECT_EQ(layout.at("expert.w1").offset, 384);
  EXPECT_EQ(layout.at("head").offset, 576);
  EXPECT_EQ(layout.at("final_norm").offset, 640);
  EXPECT_EQ(layout.size(), 704);
}

TEST(ParameterLayout, BucketsAreOfOneUnitAndGroupEach) {
  const ParameterLayout layout = small_layout();
  std::vector<std::pair<std::int64_t, Group>> kinds;
  for (const Bucket& bucket : layout.buckets())
    kinds.emplace_back(bucket.unit, bucket.group);
  EXPECT_THAT(kinds,
              testing::ElementsAre(
                  testing::Pair(0, Group::kDense), testing::Pair(1, Group::kDense),
                  testing::Pair(1, Group::kReplicated), testing::Pair(1, Group::kExpert),
                  testing::Pair(2, Group::kDense), testing::Pair(2, Group::kReplicated)));
}

TEST(ParameterLayout, SegmentsPutDecayedBlocksFirst) {
  const ParameterLayout layout = small_layout();
  const Bucket& dense = layout.buckets()[1];
  ASSERT_EQ(dense.segments.size(), 2U);
  EXPECT_EQ(dense.segments[0].range, (Range{64, 192}));
  EXPECT_TRUE(dense.segments[0].decayed);
  EXPECT_EQ(dense.segments[1].range, (Range{192, 256}));
  EXPECT_FALSE(dense.segments[1].decayed);
  ASSERT_EQ(layout.buckets()[3].segments.size(), 1U);
  EXPECT_EQ(layout.buckets()[3].segments[0].range, (Range{384, 576}));
  for (const Bucket& bucket : layout.buckets()) {
    for (const Segment& segment : bucket.segments) EXPECT_TRUE(segment.counted);
  }
}

class ShardedLayout : public testing::TestWithParam<ShardCounts> {};

TEST_P(ShardedLayout, BucketsTileTheBufferAndSegmentsAndShardsTileABucket) {
  const ParameterLayout layout = small_layout(GetParam());
  std::int64_t end = 0;
  for (const Bucket& bucket : layout.buckets()) {
    EXPECT_EQ(bucket.range.begin, end) << "buckets follow each other without gaps";
    end = bucket.range.end;
    ASSERT_EQ(bucket.shards, GetParam().of(bucket.group));
    EXPECT_EQ(bucket.range.size() % (bucket.shards * ParameterLayout::kAlignment), 0);
    EXPECT_EQ(bucket.shard_size() * bucket.shards, bucket.range.size());
    std::int64_t next = bucket.range.begin;
    for (std::int64_t i = 0; i < bucket.shards; ++i) {
      EXPECT_EQ(bucket.shard(i).begin, next);
      EXPECT_EQ(bucket.shard(i).begin % ParameterLayout::kAlignment, 0);
      next = bucket.shard(i).end;
    }
    EXPECT_EQ(next, bucket.range.end);
    next = bucket.range.begin;
    for (const Segment& segment : bucket.segments) {
      EXPECT_EQ(segment.range.begin, next);
      next = segment.range.end;
    }
    EXPECT_EQ(next, bucket.range.end);
  }
  EXPECT_EQ(end, layout.size());
}

// No more than what the shards need: less than one aligned shard row more than the
// blocks.
TEST_P(ShardedLayout, PaddingIsTheLeastThatMakesEqualShards) {
  const ParameterLayout alone = small_layout();
  const ParameterLayout layout = small_layout(GetParam());
  ASSERT_EQ(layout.buckets().size(), alone.buckets().size());
  for (std::size_t b = 0; b < alone.buckets().size(); ++b) {
    const std::int64_t blocks = alone.buckets()[b].range.size();
    const std::int64_t padded = layout.buckets()[b].range.size();
    EXPECT_GE(padded, blocks);
    EXPECT_LT(padded, blocks + ParameterLayout::kAlignment * layout.buckets()[b].shards);
  }
}

TEST_P(ShardedLayout, EveryParameterLiesInTheBucketAndSegmentOfItsKind) {
  const ParameterLayout layout = small_layout(GetParam());
  for (const ParameterSpec& parameter : layout.parameters()) {
    const Range own{parameter.offset, parameter.offset + parameter.local_count()};
    int found = 0;
    for (const Bucket& bucket : layout.buckets()) {
      for (const Segment& segment : bucket.segments) {
        const Range common = intersection(own, segment.range);
        if (common.size() <= 0) continue;
        ++found;
        EXPECT_EQ(common, own) << parameter.name;
        EXPECT_EQ(parameter.group, bucket.group) << parameter.name;
        EXPECT_EQ(parameter.decayed(), segment.decayed) << parameter.name;
      }
    }
    EXPECT_EQ(found, 1) << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(ParameterLayout, ShardedLayout,
                         testing::Values(ShardCounts{1, 1, 1}, ShardCounts{2, 4, 3},
                                         ShardCounts{3, 3, 1}, ShardCounts{16, 64, 8}),
                         [](const auto& info) {
                           return "dense_" + std::to_string(info.param.dense) +
                                  "_replicated_" + std::to_string(info.param.replicated) +
                                  "_expert_" + std::to_string(info.param.expert);
                         });

// Buckets that are cut tile the same buffer, with segments and shards of their own, and every
// parameter keeps its place.
TEST(ParameterLayout, LargeBucketsAreCut) {
  const ShardCounts shards{.dense = 2, .replicated = 4, .expert = 1};
  const auto layout_with = [&](std::int64_t largest_shard) {
    ParameterLayout layout;
    layout.add_block(0, {spec("a", {30, 10}), spec("b", {50, 10})});
    layout.add_block(0, {spec("bias", {7})});
    layout.add_block(0, {spec("norm", {1000}, Group::kReplicated)});
    layout.add_block(1, {spec("expert", {2, 64}, Group::kExpert)});
    layout.finalize(shards, largest_shard);
    return layout;
  };
  const ParameterLayout whole = layout_with(ParameterLayout::kLargestShard);
  const ParameterLayout cut = layout_with(128);
  ASSERT_EQ(whole.buckets().size(), 3U);
  EXPECT_EQ(cut.size(), whole.size());
  for (const char* name : {"a", "b", "bias", "norm", "expert"})
    EXPECT_EQ(cut.at(name).offset, whole.at(name).offset) << name;
  // 800 elements in steps of 64 and the bias in two shards: 896; 1000 in four: 1024.
  std::vector<std::int64_t> sizes;
  std::int64_t end = 0;
  for (const Bucket& bucket : cut.buckets()) {
    sizes.push_back(bucket.range.size());
    EXPECT_EQ(bucket.range.begin, end);
    end = bucket.range.end;
    EXPECT_LE(bucket.shard_size(), 128);
    EXPECT_EQ(bucket.shard_size() % ParameterLayout::kAlignment, 0);
    std::int64_t next = bucket.range.begin;
    for (const Segment& segment : bucket.segments) {
      EXPECT_EQ(segment.range.begin, next);
      next = segment.range.end;
    }
    EXPECT_EQ(next, bucket.range.end);
  }
  EXPECT_THAT(sizes, testing::ElementsAre(256, 256, 256, 128, 512, 512, 128));
  EXPECT_TRUE(cut.buckets()[0].segments.front().decayed);
  EXPECT_FALSE(cut.buckets()[3].segments.back().decayed) << "the bias";
  EXPECT_THROW(layout_with(100), InternalError) << "not aligned";
}

TEST(ParameterLayout, SegmentsSplitWhereCountedChanges) {
  ParameterLayout layout;
  ParameterSpec k = spec("k", {2, 5});
  ParameterSpec v = spec("v", {2, 5});
  k.counted = v.counted = false;
  layout.add_block(0, {spec("q", {4, 5}), k, v});
  layout.add_block(0, {spec("out", {5, 4})});
  layout.finalize({.dense = 2});
  ASSERT_EQ(layout.buckets().size(), 1U);
  const auto& segments = layout.buckets()[0].segments;
  ASSERT_EQ(segments.size(), 3U);
  EXPECT_EQ(segments[0].range, (Range{0, 20}));
  EXPECT_TRUE(segments[0].counted);
  EXPECT_EQ(segments[1].range, (Range{20, 64})) << "padding goes with what is before it";
  EXPECT_FALSE(segments[1].counted);
  EXPECT_EQ(segments[2].range, (Range{64, 128}));
  EXPECT_TRUE(segments[2].counted);
  for (const Segment& segment : segments) EXPECT_TRUE(segment.decayed);
}

// A vocabulary may end before the last of its tensor ranks.
TEST(ParameterLayout, AnEmptyPartKeepsItsBucket) {
  ParameterLayout layout;
  ParameterSpec empty = spec("embedding", {7, 5});
  empty.local_shape = {0, 5};
  empty.local_offset = {7, 0};
  layout.add_block(0, {empty});
  layout.add_block(1, {spec("next", {3, 3})});
  layout.finalize({.dense = 4});
  ASSERT_EQ(layout.buckets().size(), 2U) << "all ranks take part in the same exchanges";
  EXPECT_EQ(layout.buckets()[0].range, (Range{0, 0}));
  EXPECT_EQ(layout.at("embedding").local_count(), 0);
  EXPECT_EQ(layout.at("next").offset, 0);
  EXPECT_EQ(layout.size(), 256);
}

TEST(ParameterLayout, KeepsTheOrderOfAdditionAndCountsWithoutPadding) {
  const ParameterLayout layout = small_layout();
  std::vector<std::string> names;
  for (const ParameterSpec& parameter : layout.parameters())
    names.push_back(parameter.name);
  EXPECT_THAT(names,
              testing::ElementsAre("embedding", "norm", "q", "k", "v", "q.bias", "out",
                                   "router", "expert.w1", "final_norm", "head"));
  EXPECT_EQ(layout.global_count(), 35 + 5 + 20 + 10 + 10 + 4 + 20 + 15 + 150 + 5 + 35);
}

TEST(ParameterLayout, APartOfATensorTakesItsLocalShape) {
  ParameterLayout layout;
  ParameterSpec part = spec("w", {8, 5});
  part.local_shape = {4, 5};
  part.local_offset = {4, 0};
  layout.add_block(0, {part});
  layout.add_block(0, {spec("next", {3, 3})});
  layout.finalize();
  EXPECT_EQ(layout.at("w").local_count(), 20);
  EXPECT_EQ(layout.global_count(), 40 + 9);
  EXPECT_EQ(layout.size(), 128);
  EXPECT_EQ(layout.at("next").local_shape, (Shape{3, 3}));
  EXPECT_EQ(layout.at("next").local_offset, (Shape{0, 0}));
}

TEST(ParameterLayout, RefusesWhatCannotBe) {
  ParameterLayout layout = small_layout();
  EXPECT_TRUE(layout.contains("q"));
  EXPECT_FALSE(layout.contains("absent"));
  EXPECT_THROW(layout.at("absent"), InternalError);
  EXPECT_THROW(layout.add_block(0, {spec("late", {2})}), InternalError);

  ParameterLayout fresh;
  EXPECT_THROW(fresh.add_block(0, {}), InternalError);
  EXPECT_THROW(fresh.add_block(0, {spec("w", {2, 2}), spec("b", {2})}), InternalError)
      << "decayed and not decayed in one block";
  EXPECT_THROW(fresh.add_block(0, {spec("w", {2, 2}), spec("e", {2, 2}, Group::kExpert)}),
               InternalError)
      << "two groups in one block";
  fresh.add_block(0, {spec("twice", {2})});
  EXPECT_THROW(fresh.add_block(0, {spec("twice", {2})}), InternalError);
}

TEST(Intersection, IsTheCommonPart) {
  EXPECT_EQ(intersection({2, 8}, {5, 11}), (Range{5, 8}));
  EXPECT_EQ(intersection({5, 11}, {2, 8}), (Range{5, 8}));
  EXPECT_EQ(intersection({2, 8}, {3, 4}), (Range{3, 4}));
  EXPECT_EQ(intersection({2, 8}, {2, 8}), (Range{2, 8}));
  EXPECT_LE(intersection({2, 5}, {5, 8}).size(), 0);
  EXPECT_LE(intersection({2, 5}, {7, 8}).size(), 0);
}

TEST(ShardCounts, OfAGroup) {
  const ShardCounts shards{.dense = 2, .replicated = 6, .expert = 3};
  EXPECT_EQ(shards.of(Group::kDense), 2);
  EXPECT_EQ(shards.of(Group::kReplicated), 6);
  EXPECT_EQ(shards.of(Group::kExpert), 3);
}

TEST(ElementCount, IsTheProductOfTheExtents) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({3, 4, 5}), 60);
  EXPECT_EQ(element_count({3, 0}), 0);
  EXPECT_EQ(element_count({1 << 20, 1 << 20}), std::int64_t{1} << 40);
}

}  // namespace
}  // namespace pleat::tensor
