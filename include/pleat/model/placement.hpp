// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What a rank holds of the model: its layers, and its slices of each. Pure
/// arithmetic on the two grids.

#include <cstdint>
#include <optional>
#include <vector>

#include "pleat/comm/grid_shape.hpp"
#include "pleat/plan/model_config.hpp"
#include "pleat/tensor/parameter_layout.hpp"

namespace pleat::model {

/// \brief A run of heads, vocabulary entries, experts, ffn rows or layers.
struct Slice {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t end() const { return first + count; }
};

/// \brief Part `index` of `parts` equal parts of n; where n is not divisible, the last
/// parts are smaller or empty.
Slice slice_of(std::int64_t n, std::int64_t parts, std::int64_t index);

struct Placement {
  plan::ModelConfig whole;  ///< the model
  /// The model as this rank's layers compute it: with its heads, key/value heads, dense
  /// and shared ffn, experts and expert ffn in place of the whole's.
  plan::ModelConfig part;

  Slice heads;
  Slice kv_heads;
  /// Tensor ranks that hold the same key/value heads (1 unless kv_heads < tensor ranks),
  /// and which of them this is.
  std::int64_t kv_replicas = 1;
  std::int64_t kv_replica = 0;
  Slice vocab;
  Slice ffn;         ///< of the dense layers
  Slice shared_ffn;  ///< of the shared expert
  Slice experts;
  Slice expert_ffn;  ///< of each of the experts

  std::vector<Slice> chunks;  ///< layers of each model chunk of this stage
  bool has_embedding = true;  ///< holds the first layer's input ...
  bool has_head = true;       ///< ... the last layer's output
  tensor::ShardCounts shards;
  tensor::ShardCounts shard_index;  ///< which part of each bucket is this rank's

  /// Both, of one tied matrix, on different stages: the head is a copy of the embedding.
  bool has_tied_copy() const { return whole.tied && has_head && !has_embedding; }
  /// \brief Which of the groups of tensor ranks that share key/value heads this rank is in;
  /// none where no two ranks have the same. They sum the gradients of these heads.
  std::optional<int> kv_copy_group() const;
  /// \brief Whether another stage holds the same tied matrix: the two sum its gradient.
  bool shares_tied_matrix() const { return whole.tied && has_embedding != has_head; }
  bool has_layer(std::int64_t layer) const;
  /// \brief Whether this is the first of the ranks that sum gradients of the group.
  bool is_first_of(tensor::Group group) const { return shard_index.of(group) == 0; }
};

/// \brief Everything on one rank.
Placement make_placement(const plan::ModelConfig& config);

/// \brief The part of `rank`.
/// \param layout  layers of each virtual stage in model order; a multiple of the pipeline
///   degree of them, of which stage s holds every pipeline-th from s on
Placement make_placement(const plan::ModelConfig& config, const comm::GridShape& shape,
                         std::int64_t rank, const std::vector<std::int64_t>& layout);

}  // namespace pleat::model
