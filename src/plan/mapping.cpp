// SPDX-License-Identifier: Apache-2.0
#include "pleat/plan/mapping.hpp"

#include <cstdlib>

#include "pleat/base/error.hpp"

namespace pleat::plan {
namespace {

/// The divisor of n that is nearest to the degree; the smaller of two.
std::int64_t nearest_divisor(std::int64_t n, std::int64_t degree) {
  for (std::int64_t distance = 0;; ++distance) {
    if (degree > distance && n % (degree - distance) == 0) return degree - distance;
    if (degree + distance <= n && n % (degree + distance) == 0) return degree + distance;
  }
}

/// The degree named `key` must divide the extent named `what`.
void require_divides(const char* key, std::int64_t degree, const char* what,
                     std::int64_t extent) {
  PLEAT_REQUIRE(
      extent % degree == 0, InputError, "PL0610",
      "{} = {} does not divide {} = {}\nHINT: the nearest degree that does is {}.", key,
      degree, what, extent, nearest_divisor(extent, degree));
}

void validate_attention_axes(const ModelConfig& config, const Batch& batch,
                             const Mapping& mapping) {
  require_divides("parallel.tensor", mapping.tensor, "model.heads", config.heads);
  // Fewer key/value heads than ranks are replicated, evenly.
  const bool replicated = mapping.tensor > config.kv_heads;
  if (replicated) {
    require_divides("model.kv_heads", config.kv_heads, "parallel.tensor", mapping.tensor);
  } else {
    require_divides("parallel.tensor", mapping.tensor, "model.kv_heads", config.kv_heads);
  }
  if (mapping.context > 1) {
    PLEAT_REQUIRE(
        batch.sequence % 2 == 0, InputError, "PL0610",
        "batch.sequence = {} is odd, but parallel.context = {} cuts it into pairs of "
        "chunks\nHINT: choose an even length.",
        batch.sequence, mapping.context);
    require_divides("parallel.context", mapping.context, "half of batch.sequence",
                    batch.sequence / 2);
  }
  require_divides("parallel.context * parallel.tensor", mapping.context * mapping.tensor,
                  "batch.sequence", batch.sequence);
}

}  // namespace

void validate_mapping(const ModelConfig& config, const Batch& batch,
                      const Mapping& mapping) {
  require_divides("parallel.pipeline", mapping.pipeline, "model.layers", config.layers);
  validate_attention_axes(config, batch, mapping);
  if (config.has_moe_layers()) {
    require_divides("parallel.expert", mapping.expert, "moe.experts", config.moe.experts);
    require_divides("parallel.expert_tensor", mapping.expert_tensor, "moe.ffn",
                    config.moe.ffn);
  }
  if (config.has_dense_layers()) {
    require_divides("parallel.tensor", mapping.tensor, "model.ffn", config.ffn);
  }
  if (config.moe.shared_ffn > 0) {
    require_divides("parallel.tensor", mapping.tensor, "moe.shared_ffn",
                    config.moe.shared_ffn);
  }
  require_divides("batch.micro", batch.micro, "batch.global", batch.global);
  require_divides("the data degree", mapping.data, "the micro-batches of a step",
                  batch.global / batch.micro);
}

}  // namespace pleat::plan
