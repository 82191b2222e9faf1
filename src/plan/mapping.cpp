// SPDX-License-Identifier: Apache-2.0
#include "pleat/plan/mapping.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/ranges.h>

#include "pleat/base/error.hpp"

namespace pleat::plan {
namespace {

/// The divisors of n on both sides of the degree, "4 and 8", or the only one.
std::string nearest_divisors(std::int64_t n, std::int64_t degree) {
  std::int64_t below = std::min(n, degree);
  while (n % below != 0) --below;
  std::int64_t above = degree;
  while (above <= n && n % above != 0) ++above;
  if (above > n) return fmt::format("degree that does is {}", below);
  return fmt::format("degrees that do are {} and {}", below, above);
}

/// The degree named `key` must divide the extent named `what`.
void require_divides(const char* key, std::int64_t degree, const char* what,
                     std::int64_t extent) {
  PLEAT_REQUIRE(extent % degree == 0, InputError, "PL0610",
                "{} = {} does not divide {} = {}\nHINT: the nearest {}.", key, degree,
                what, extent, nearest_divisors(extent, degree));
}

/// Fewer key/value heads than ranks are replicated, evenly.
void validate_heads(const ModelConfig& config, std::int64_t tensor) {
  require_divides("parallel.tensor", tensor, "model.heads", config.heads);
  if (tensor <= config.kv_heads) {
    require_divides("parallel.tensor", tensor, "model.kv_heads", config.kv_heads);
    return;
  }
  PLEAT_REQUIRE(
      tensor % config.kv_heads == 0, InputError, "PL0610",
      "parallel.tensor = {} is no multiple of model.kv_heads = {}: each key/value "
      "head would have another number of copies\nHINT: the nearest degrees that are "
      "one are {} and {}.",
      tensor, config.kv_heads, tensor / config.kv_heads * config.kv_heads,
      (tensor / config.kv_heads + 1) * config.kv_heads);
}

/// The sequence is a number of pieces.
void require_pieces(const char* what, std::int64_t pieces, std::int64_t sequence) {
  const std::int64_t below = sequence / pieces * pieces;
  PLEAT_REQUIRE(sequence % pieces == 0, InputError, "PL0610",
                "batch.sequence = {} is no multiple of {} = {}\n"
                "HINT: the nearest lengths that are one are {}{}; or lower the degree.",
                sequence, what, pieces, below > 0 ? fmt::format("{} and ", below) : "",
                below + pieces);
}

void validate_sequence(std::int64_t sequence, const Mapping& mapping) {
  if (mapping.context > 1) {
    // Each context rank has two chunks, an early and a late one, for equal causal work.
    require_pieces("2 * parallel.context", 2 * mapping.context, sequence);
  }
  require_pieces("parallel.context * parallel.tensor", mapping.context * mapping.tensor,
                 sequence);
}

void validate_feed_forward(const ModelConfig& config, const Mapping& mapping) {
  if (config.has_moe_layers()) {
    require_divides("parallel.expert", mapping.expert, "moe.experts", config.moe.experts);
    require_divides("parallel.expert_tensor", mapping.expert_tensor, "moe.ffn",
                    config.moe.ffn);
  }
  if (config.has_moe_layers() && config.moe.shared_ffn > 0) {
    require_divides("parallel.tensor", mapping.tensor, "moe.shared_ffn",
                    config.moe.shared_ffn);
  }
  if (config.has_dense_layers()) {
    require_divides("parallel.tensor", mapping.tensor, "model.ffn", config.ffn);
  }
}

void validate_layout(const ModelConfig& config, const Mapping& mapping) {
  const std::vector<std::int64_t>& layout = mapping.layout;
  PLEAT_REQUIRE(
      static_cast<std::int64_t>(layout.size()) == mapping.virtual_stages(), InputError,
      "PL0623",
      "parallel.layout has {} entries, but parallel.pipeline * parallel.chunks = {} "
      "virtual stages\nHINT: one number of layers for each, or leave it out.",
      layout.size(), mapping.virtual_stages());
  const std::int64_t sum = std::accumulate(layout.begin(), layout.end(), std::int64_t{0});
  const bool negative =
      std::any_of(layout.begin(), layout.end(), [](std::int64_t n) { return n < 0; });
  PLEAT_REQUIRE(
      !negative && sum == config.layers, InputError, "PL0623",
      "parallel.layout = [{}] holds {} layers, the model has model.layers = {}\n"
      "HINT: numbers of at least 0 whose sum is {}, or leave it out.",
      fmt::join(layout, ", "), sum, config.layers, config.layers);
}

void validate_stages(const ModelConfig& config, const Mapping& mapping) {
  if (!mapping.layout.empty()) return validate_layout(config, mapping);
  PLEAT_REQUIRE(
      mapping.virtual_stages() <= config.layers, InputError, "PL0622",
      "parallel.pipeline = {} with parallel.chunks = {} makes {} virtual stages, but "
      "model.layers = {}\nHINT: at most {} stages with these chunks; only an explicit "
      "parallel.layout may leave a stage empty.",
      mapping.pipeline, mapping.chunks, mapping.virtual_stages(), config.layers,
      std::max<std::int64_t>(1, config.layers / mapping.chunks));
}

}  // namespace

void validate_mapping(const ModelConfig& config, const Batch& batch,
                      const Mapping& mapping) {
  validate_stages(config, mapping);
  validate_heads(config, mapping.tensor);
  validate_sequence(batch.sequence, mapping);
  validate_feed_forward(config, mapping);
  require_divides("batch.micro", batch.micro, "batch.global", batch.global);
}

}  // namespace pleat::plan
