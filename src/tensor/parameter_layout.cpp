// SPDX-License-Identifier: Apache-2.0
#include "pleat/tensor/parameter_layout.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

#include "pleat/base/error.hpp"

namespace pleat::tensor {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Appends a run, or lengthens the last one where it is of the same kind.
void append(std::vector<Segment>& segments, const Segment& next) {
  if (!segments.empty()) {
    Segment& last = segments.back();
    if (last.decayed == next.decayed && last.counted == next.counted) {
      last.range.end = next.range.end;
      return;
    }
    last.range.end = next.range.begin;  // padding goes with what is before it
  }
  segments.push_back(next);
}

/// The segments inside a range.
std::vector<Segment> segments_in(const std::vector<Segment>& segments,
                                 const Range& range) {
  std::vector<Segment> inside;
  for (const Segment& segment : segments) {
    const Range common = intersection(segment.range, range);
    if (common.size() > 0) inside.push_back({common, segment.decayed, segment.counted});
  }
  return inside;
}

}  // namespace

std::int64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

Range intersection(const Range& a, const Range& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

std::int64_t ShardCounts::of(Group group) const {
  if (group == Group::kDense) return dense;
  return group == Group::kReplicated ? replicated : expert;
}

void ParameterLayout::add_block(std::int64_t unit, std::vector<ParameterSpec> block) {
  PLEAT_ASSERT(buckets_.empty(), "blocks come before finalize()");
  PLEAT_ASSERT(!block.empty(), "a block has at least one tensor");
  const ParameterSpec& front = block.front();
  for (const ParameterSpec& parameter : block) {
    PLEAT_ASSERT(parameter.group == front.group && parameter.decayed() == front.decayed(),
                 "'{}' does not belong into the block of '{}'", parameter.name,
                 front.name);
  }
  const std::size_t first = parameters_.size();
  blocks_.push_back({unit, front.group, front.decayed(), first, first + block.size()});
  for (ParameterSpec& parameter : block) {
    if (parameter.local_shape.empty()) {
      parameter.local_shape = parameter.global_shape;
      parameter.local_offset = Shape(parameter.global_shape.size(), 0);
    }
    const bool added = index_.emplace(parameter.name, parameters_.size()).second;
    PLEAT_ASSERT(added, "parameter '{}' is declared twice", parameter.name);
    parameters_.push_back(std::move(parameter));
  }
}

void ParameterLayout::place_block(const Block& block, Bucket& bucket) {
  for (std::size_t i = block.first; i < block.last; ++i) {
    ParameterSpec& parameter = parameters_[i];
    parameter.offset = size_;
    size_ += parameter.local_count();
    append(bucket.segments,
           {{parameter.offset, size_}, block.decayed, parameter.counted});
  }
  size_ = round_up(size_, kAlignment);
}

/// Pads what the blocks of a unit and group take, and cuts it.
void ParameterLayout::close_buckets(Bucket& whole, std::int64_t largest_shard) {
  const std::int64_t begin = whole.range.begin;
  size_ = begin + round_up(size_ - begin, kAlignment * whole.shards);
  whole.range.end = size_;
  whole.segments.back().range.end = size_;
  const std::int64_t largest = largest_shard * whole.shards;
  if (whole.range.size() <= largest) {
    buckets_.push_back(std::move(whole));
    return;
  }
  for (std::int64_t at = begin; at < size_; at += largest) {
    Bucket piece = whole;
    piece.range = {at, std::min(at + largest, size_)};
    piece.segments = segments_in(whole.segments, piece.range);
    buckets_.push_back(std::move(piece));
  }
}

void ParameterLayout::finalize(const ShardCounts& shards, std::int64_t largest_shard) {
  PLEAT_ASSERT(largest_shard > 0 && largest_shard % kAlignment == 0,
               "shards of at most {} elements are not aligned", largest_shard);
  std::vector<Block> order = blocks_;
  std::stable_sort(order.begin(), order.end(), [](const Block& a, const Block& b) {
    return std::tuple(a.unit, a.group, !a.decayed) <
           std::tuple(b.unit, b.group, !b.decayed);
  });
  for (std::size_t i = 0; i < order.size();) {
    Bucket bucket{.unit = order[i].unit,
                  .group = order[i].group,
                  .range = {size_, size_},
                  .shards = shards.of(order[i].group),
                  .segments = {}};
    for (; i < order.size() && order[i].unit == bucket.unit &&
           order[i].group == bucket.group;
         ++i) {
      place_block(order[i], bucket);
    }
    close_buckets(bucket, largest_shard);
  }
}

const ParameterSpec& ParameterLayout::at(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  PLEAT_ASSERT(found != index_.end(), "there is no parameter '{}'", name);
  return parameters_[found->second];
}

bool ParameterLayout::contains(std::string_view name) const {
  return index_.contains(std::string(name));
}

std::int64_t ParameterLayout::global_count() const {
  std::int64_t count = 0;
  for (const ParameterSpec& parameter : parameters_)
    count += element_count(parameter.global_shape);
  return count;
}

}  // namespace pleat::tensor
