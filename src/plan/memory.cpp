// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Counts what the layers of model/ take from their arenas; docs/memory.md has the
/// sums as formulas and compares them with measurements.
///
/// Legend: T tokens of a rank, K experts per token, R = T K rows at the experts, D
/// hidden, Q row of the fused projection, O = heads head_dim, E experts, F ffn of an
/// expert, G ffn of the dense layer or of the shared expert. Element counts are doubles:
/// they feed sums only.
#include "pleat/plan/memory.hpp"

#include <algorithm>

namespace pleat::plan {
namespace {

/// Of the process before it has a model, measured: code, MPI, HDF5, BLAS buffers.
constexpr double kProgramBytes = 40.0 * 1024 * 1024;

/// The extents on one rank.
struct Extents {
  double t, r, k, d, q, o, h, e, f, g_dense, g_shared, vocab;
  bool qk_norm, shared_gate;
};

Extents extents_of(const ModelConfig& config, const MemoryRequest& request) {
  const Mapping& map = request.mapping;
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  const double sequence_parts = real(map.context * map.tensor);
  const double tensor = real(map.tensor);
  Extents x{};
  x.t = real(request.batch.micro * request.batch.sequence) / sequence_parts;
  x.k = real(config.moe.top_k);
  // Each of the expert-tensor ranks sees the rows of all of them.
  x.r = x.t * x.k * real(map.expert_tensor);
  x.d = real(config.hidden);
  // Heads are cut by tensor, the sequence is whole over it: T Q and T O stay as they are.
  x.q = real(config.qkv_size());
  x.o = real(config.q_size());
  x.h = real(config.heads);
  x.e = real(config.moe.experts);
  x.f = real(config.moe.ffn) / real(map.expert_tensor);
  x.g_dense = real(config.ffn);
  x.g_shared = real(config.moe.shared_ffn);
  x.vocab = real(config.vocab) / tensor;
  x.qk_norm = config.qk_norm;
  x.shared_gate = config.moe.shared_gate;
  return x;
}

/// What `selective` computes again: attention core and the gate and up projections.
double inner_elements(const Extents& x, bool is_moe) {
  const double attention = x.t * (x.o + x.h);
  if (!is_moe) return attention + 2.0 * x.t * x.g_dense;
  return attention + 2.0 * x.r * x.f + 2.0 * x.t * x.g_shared;
}

/// What every mode but `full` keeps of a block, its output not counted.
double outer_elements(const Extents& x, bool is_moe, double scalar_bytes) {
  const double attention = x.t * (x.d + 1.0 + x.q + (x.qk_norm ? x.q : 0.0));
  const double middle = x.t * (2.0 * x.d + 1.0);
  if (!is_moe) return attention + middle;
  // Logits, scores, weights; indices in 4 bytes, the permutation twice in 8.
  const double router = x.t * (2.0 * x.e + x.k) + x.r + (20.0 * x.t * x.k) / scalar_bytes;
  const double gate = x.shared_gate ? x.t * (x.d + 1.0) : 0.0;
  return attention + middle + router + gate;
}

/// Largest scratch of the backward pass of a feed-forward half, with the gradient of its
/// norm.
double feed_forward_scratch(const Extents& x, bool is_moe, bool again) {
  if (!is_moe) return x.t * x.d + x.t * x.g_dense * (again ? 3.0 : 1.0);
  const double routed = x.r * (x.d + x.f + 1.0 + (again ? 2.0 * x.f : 0.0));
  const double shared =
      x.t * (x.g_shared * (again ? 3.0 : 1.0) + (x.shared_gate ? x.d + 1.0 : 0.0));
  return x.t * (x.d + x.k) + std::max({routed, shared, x.t * x.e});
}

double attention_scratch(const Extents& x, bool again) {
  return x.t * (x.q + x.o + x.h + x.d + (again ? x.o + x.h : 0.0));
}

double block_scratch(const Extents& x, bool is_moe, bool again) {
  return std::max(feed_forward_scratch(x, is_moe, again), attention_scratch(x, again));
}

/// Tokens whose logits are held at once, as model/head.cpp has it.
double head_chunk_tokens(const Extents& x, double scalar_bytes) {
  constexpr double kChunkBytes = 32.0 * 1024 * 1024;
  constexpr double kSmallestChunk = 128.0;
  return std::min(x.t, std::max(kSmallestChunk, kChunkBytes / (x.vocab * scalar_bytes)));
}

/// Largest value of `elements(is_moe)` over the kinds of layers that the model has.
template <class Elements>
double largest(const ModelConfig& config, const Elements& elements) {
  return std::max(config.has_moe_layers() ? elements(true) : 0.0,
                  config.has_dense_layers() ? elements(false) : 0.0);
}

/// Kept from forward to backward, over the layers of one stage.
double kept_elements(const ModelConfig& config, const Extents& x, Recompute recompute,
                     double scalar_bytes) {
  double sum = x.t * (2.0 * x.d + 1.0);  // embedding and final norm
  for (const bool is_moe : config.moe_layer) {
    sum += x.t * x.d;
    if (recompute != Recompute::kFull) sum += outer_elements(x, is_moe, scalar_bytes);
    if (recompute == Recompute::kNone) sum += inner_elements(x, is_moe);
  }
  return sum;
}

/// Micro-batches whose activations the first stage of a 1F1B pipeline holds at once, as a
/// share of the layers: `pipeline` micro-batches of 1 / `pipeline` of the layers, or
/// fewer.
double share_in_flight(const MemoryRequest& request) {
  const Mapping& map = request.mapping;
  const auto micro_batches = request.batch.global / (request.batch.micro * map.data);
  return static_cast<double>(
             std::min(map.pipeline, std::max<std::int64_t>(1, micro_batches))) /
         static_cast<double>(map.pipeline);
}

}  // namespace

double MemoryUse::total() const {
  return parameters + gradients + optimizer + activations + recomputed + workspace + program;
}

LocalParameters local_parameters(const ModelConfig& config, const Mapping& mapping) {
  std::int64_t moe_layers = 0;
  for (const bool is_moe : config.moe_layer) moe_layers += is_moe ? 1 : 0;
  const std::int64_t experts =
      moe_layers * config.moe.experts * 3 * config.hidden * config.moe.ffn;
  const std::int64_t embedding = config.vocab * config.hidden;
  const std::int64_t outside = (config.tied ? 1 : 2) * embedding;
  const std::int64_t inside = count_parameters(config).total - experts - outside;
  // The ends of the pipeline hold one of embedding and head each.
  const std::int64_t held = mapping.pipeline > 1 ? embedding : outside;
  return {(inside / mapping.pipeline + held) / mapping.tensor,
          experts / (mapping.pipeline * mapping.expert * mapping.expert_tensor)};
}

MemoryUse training_memory(const ModelConfig& config, const MemoryRequest& request) {
  const Mapping& map = request.mapping;
  const Extents x = extents_of(config, request);
  const auto bytes = static_cast<double>(request.scalar_bytes);
  const bool full = request.recompute == Recompute::kFull;
  const bool again = request.recompute == Recompute::kSelective;

  const LocalParameters local = local_parameters(config, map);
  const auto dense = static_cast<double>(local.dense);
  const auto experts = static_cast<double>(local.experts);
  MemoryUse use;
  use.parameters = bytes * (dense + experts);
  use.gradients = use.parameters;
  use.optimizer = 2.0 * bytes *
                  (dense / static_cast<double>(map.data * map.context) +
                   experts / static_cast<double>(map.expert_data));
  use.activations = bytes * share_in_flight(request) *
                    kept_elements(config, x, request.recompute, bytes);
  if (full) {
    use.recomputed =
        bytes * largest(config, [&](bool is_moe) {
          return x.t * x.d + outer_elements(x, is_moe, bytes) + inner_elements(x, is_moe);
        });
  }
  const double block =
      largest(config, [&](bool is_moe) { return block_scratch(x, is_moe, again); });
  const double logits = head_chunk_tokens(x, bytes) * x.vocab;
  use.logits = bytes * logits;
  use.workspace = bytes * (x.t * x.d + std::max(block, x.t * x.d + logits));
  use.program = kProgramBytes;
  return use;
}

}  // namespace pleat::plan
