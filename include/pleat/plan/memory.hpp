// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief How much memory a rank needs to train a model, from the shape alone.

#include <cstdint>
#include <vector>

#include "pleat/plan/mapping.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::plan {

/// \brief The layers of one chunk of a stage, and of how many micro-batches it holds
/// activations when the stage is fullest.
struct ChunkLoad {
  std::int64_t moe_layers = 0;
  std::int64_t dense_layers = 0;
  std::int64_t micro_batches = 1;
};

/// \brief What one pipeline stage holds. Without chunks: the whole model, on one stage.
struct StageLoad {
  std::vector<ChunkLoad> chunks = {};
  bool embedding = true;
  bool head = true;  ///< and the final norm
};

/// \brief Elements of a gradient that a rank owns of one sum at most: what MPI holds of it.
/// As tensor::ParameterLayout has it.
inline constexpr std::int64_t kLargestShard = std::int64_t{1} << 21;

struct MemoryRequest {
  Batch batch = {};
  Mapping mapping = {};
  Recompute recompute = Recompute::kNone;
  /// Of a weight of the model and of an activation. Gradients, moments, statistics and sums
  /// have 4 at least, as have the optimizer's own weights where the model's have fewer.
  std::int64_t scalar_bytes = 4;
  Sharding sharding = Sharding::kOptimizer;
  DispatcherKind dispatcher = DispatcherKind::kAllToAll;
  ContextExchange exchange = ContextExchange::kRing;
  StageLoad stage = {};
};

/// \brief Bytes of a rank, by item.
struct MemoryUse {
  double parameters = 0.0;
  double gradients = 0.0;
  double optimizer = 0.0;    ///< both moments, split over the ranks that sum the gradient;
                             ///< and master weights
  double reduction = 0.0;    ///< parts of gradients under way to their sums
  double activations = 0.0;  ///< from forward to backward, of all micro-batches in flight
  double recomputed = 0.0;   ///< one block's, computed again in the backward pass
  double workspace = 0.0;    ///< within the layer, or the head, that needs most
  double logits = 0.0;       ///< one chunk of the head's logits; part of the workspace
  double program = 0.0;      ///< the process itself: code, MPI, BLAS buffers
  double total() const;
};

/// \brief Assumes that routing is balanced and nothing is dropped (docs/memory.md).
MemoryUse training_memory(const ModelConfig& config, const MemoryRequest& request);

/// \brief Parameters of a rank.
struct LocalParameters {
  std::int64_t outside = 0;     ///< embedding, final norm, head
  std::int64_t dense = 0;       ///< of the layers, split over tensor ranks
  std::int64_t replicated = 0;  ///< of the layers, whole on every tensor rank
  std::int64_t experts = 0;
  std::int64_t total() const { return outside + dense + replicated + experts; }
};
LocalParameters local_parameters(const ModelConfig& config, const Mapping& mapping,
                                 const StageLoad& stage);
/// \brief Of one layer: `outside` is 0.
LocalParameters layer_parameters(const ModelConfig& config, const Mapping& mapping,
                                 bool is_moe);

/// \brief The stage of a model that has one.
StageLoad whole_model(const ModelConfig& config);

}  // namespace pleat::plan
