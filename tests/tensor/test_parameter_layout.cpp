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

/// \brief Added in the order of a model; the layout sorts them into segments.
ParameterLayout small_layout() {
  ParameterLayout layout;
  layout.add_block({spec("norm", {5})});
  layout.add_block({spec("q", {4, 5}), spec("k", {2, 5}), spec("v", {2, 5})});
  layout.add_block({spec("expert.w1", {3, 5}, Group::kExpert)});
  layout.add_block({spec("head", {7, 5})});
  layout.finalize();
  return layout;
}

TEST(ParameterLayout, TensorsOfABlockLieBackToBack) {
  const ParameterLayout layout = small_layout();
  const std::int64_t q = layout.at("q").offset;
  EXPECT_EQ(q % ParameterLayout::kAlignment, 0);
  EXPECT_EQ(layout.at("k").offset, q + 20);
  EXPECT_EQ(layout.at("v").offset, q + 30);
}

TEST(ParameterLayout, BlocksAreAlignedAndGroupedIntoSegments) {
  const ParameterLayout layout = small_layout();
  EXPECT_EQ(layout.at("q").offset, 0);
  EXPECT_EQ(layout.at("head").offset, 64);
  EXPECT_EQ(layout.at("norm").offset, 128);
  EXPECT_EQ(layout.at("expert.w1").offset, 192);
  EXPECT_EQ(layout.size(), 256);

  const auto& segments = layout.segments();
  ASSERT_EQ(segments.size(), 3U);
  std::int64_t end = 0;
  for (const Segment& segment : segments) {
    EXPECT_EQ(segment.begin, end) << "segments follow each other without gaps";
    end = segment.end;
  }
  EXPECT_EQ(end, layout.size());
  EXPECT_EQ(segments[0].group, Group::kDense);
  EXPECT_TRUE(segments[0].decayed);
  EXPECT_EQ(segments[1].group, Group::kDense);
  EXPECT_FALSE(segments[1].decayed);
  EXPECT_EQ(segments[2].group, Group::kExpert);
  EXPECT_TRUE(segments[2].decayed);
}

TEST(ParameterLayout, EveryParameterLiesInTheSegmentOfItsKind) {
  const ParameterLayout layout = small_layout();
  for (const ParameterSpec& parameter : layout.parameters()) {
    int found = 0;
    for (const Segment& segment : layout.segments()) {
      if (parameter.offset < segment.begin || parameter.offset >= segment.end) continue;
      ++found;
      EXPECT_LE(parameter.offset + parameter.local_count(), segment.end)
          << parameter.name;
      EXPECT_EQ(parameter.group, segment.group) << parameter.name;
      EXPECT_EQ(parameter.decayed(), segment.decayed) << parameter.name;
    }
    EXPECT_EQ(found, 1) << parameter.name;
  }
}

TEST(ParameterLayout, KeepsTheOrderOfAdditionAndCountsWithoutPadding) {
  const ParameterLayout layout = small_layout();
  std::vector<std::string> names;
  for (const ParameterSpec& parameter : layout.parameters())
    names.push_back(parameter.name);
  EXPECT_THAT(names, testing::ElementsAre("norm", "q", "k", "v", "expert.w1", "head"));
  EXPECT_EQ(layout.global_count(), 5 + 20 + 10 + 10 + 15 + 35);
}

TEST(ParameterLayout, APartOfATensorTakesItsLocalShape) {
  ParameterLayout layout;
  ParameterSpec part = spec("w", {8, 5});
  part.local_shape = {4, 5};
  part.local_offset = {4, 0};
  layout.add_block({part});
  layout.add_block({spec("next", {3, 3})});
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
  EXPECT_THROW(layout.add_block({spec("late", {2})}), InternalError);

  ParameterLayout fresh;
  EXPECT_THROW(fresh.add_block({}), InternalError);
  EXPECT_THROW(fresh.add_block({spec("w", {2, 2}), spec("b", {2})}), InternalError)
      << "decayed and not decayed in one block";
  fresh.add_block({spec("twice", {2})});
  EXPECT_THROW(fresh.add_block({spec("twice", {2})}), InternalError);
}

TEST(ElementCount, IsTheProductOfTheExtents) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({3, 4, 5}), 60);
  EXPECT_EQ(element_count({3, 0}), 0);
  EXPECT_EQ(element_count({1 << 20, 1 << 20}), std::int64_t{1} << 40);
}

}  // namespace
}  // namespace pleat::tensor
