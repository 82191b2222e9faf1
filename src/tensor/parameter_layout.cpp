// SPDX-License-Identifier: Apache-2.0
#include "pleat/tensor/parameter_layout.hpp"

#include <functional>
#include <numeric>

#include "pleat/base/error.hpp"

namespace pleat::tensor {

std::int64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

void ParameterLayout::add_block(std::vector<ParameterSpec> block) {
  PLEAT_ASSERT(size_ == 0, "blocks come before finalize()");
  PLEAT_ASSERT(!block.empty(), "a block has at least one tensor");
  block_begin_.push_back(parameters_.size());
  for (const ParameterSpec& parameter : block) {
    PLEAT_ASSERT(parameter.group == block.front().group &&
                     parameter.decayed() == block.front().decayed(),
                 "'{}' does not belong into the block of '{}'", parameter.name,
                 block.front().name);
  }
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

void ParameterLayout::finalize() {
  block_begin_.push_back(parameters_.size());
  std::int64_t offset = 0;
  for (const Group group : {Group::kDense, Group::kExpert}) {
    for (const bool decayed : {true, false}) {
      const std::int64_t begin = offset;
      for (std::size_t block = 0; block + 1 < block_begin_.size(); ++block) {
        const ParameterSpec& first = parameters_[block_begin_[block]];
        if (first.group != group || first.decayed() != decayed) continue;
        for (std::size_t i = block_begin_[block]; i < block_begin_[block + 1]; ++i) {
          parameters_[i].offset = offset;
          offset += parameters_[i].local_count();
        }
        offset = (offset + kAlignment - 1) / kAlignment * kAlignment;
      }
      if (offset > begin) segments_.push_back({begin, offset, group, decayed});
    }
  }
  size_ = offset;
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
  for (const ParameterSpec& parameter : parameters_) count += element_count(parameter.global_shape);
  return count;
}

}  // namespace pleat::tensor
