// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief How much memory a rank needs to train a model, from the shape alone.

#include <cstdint>

#include "pleat/plan/mapping.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::plan {

struct MemoryRequest {
  Batch batch;
  Mapping mapping;
  Recompute recompute = Recompute::kNone;
  std::int64_t scalar_bytes = 4;
};

/// \brief Bytes of the fullest rank, by item.
struct MemoryUse {
  double parameters = 0.0;
  double gradients = 0.0;
  double optimizer = 0.0;    ///< both moments, split over the ranks that sum the gradient
  double activations = 0.0;  ///< from forward to backward, of all layers
  double recomputed = 0.0;   ///< one block's, computed again in the backward pass
  double workspace = 0.0;    ///< within the layer, or the head, that needs most
  double logits = 0.0;       ///< one chunk of the head's logits; part of the workspace
  double program = 0.0;      ///< the process itself: code, MPI, BLAS buffers
  double total() const;
};

/// \brief Assumes that routing is balanced and nothing is dropped. For one rank it agrees
/// with the measured peak (docs/memory.md); for more ranks it is the plan of the mapping.
MemoryUse training_memory(const ModelConfig& config, const MemoryRequest& request);

/// \brief Parameters of the fullest rank.
struct LocalParameters {
  std::int64_t dense = 0;  ///< everything but the routed experts
  std::int64_t experts = 0;
};
LocalParameters local_parameters(const ModelConfig& config, const Mapping& mapping);

}  // namespace pleat::plan
