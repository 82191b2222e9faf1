// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Counts what the layers of model/ take from their arenas; docs/memory.md has the
/// sums as formulas and compares them with measurements.
///
/// Legend, all of one rank: T tokens of the residual stream, U = T tensor tokens in
/// attention, dense layers and shared expert, K experts per token, R rows at the experts,
/// D hidden, Q row of the fused projection, O = heads head_dim, H heads, C elements of
/// keys and values in a row, E experts of a layer (of all ranks), F ffn of an expert, G
/// ffn of the dense layer or of the shared expert. Element counts are doubles: they feed
/// sums only.
#include "pleat/plan/memory.hpp"

#include <algorithm>

#include "memory_parts.hpp"
#include "pleat/base/error.hpp"

namespace pleat::plan {
namespace {

/// Of the process before it has a model, measured: code, MPI, HDF5, BLAS buffers.
constexpr double kProgramBytes = 40.0 * 1024 * 1024;

/// The extents on one rank.
struct Extents {
  double t, u, r, k, d, q, o, h, c, e, f, g_dense, g_shared, vocab;
  double wide;     ///< scalars that a statistic takes the place of
  double waiting;  ///< rows on their way to the experts or back
  double keys;     ///< rows of keys, values and their gradients on their way
  bool qk_norm, shared_gate;
  bool cuts_rows;  ///< tensor > 1: rows are gathered and results scattered
};

/// Rows in buffers while tokens travel: sent or returned, arrived but not sorted by
/// expert, and summed over the parts of an expert.
double waiting_rows(const Extents& x, const MemoryRequest& request) {
  const Mapping& map = request.mapping;
  const double ranks = real(map.expert * map.expert_tensor);
  if (ranks == 1.0) return 0.0;
  if (request.dispatcher == DispatcherKind::kAllGather) return ranks * x.t;
  const bool sorted =
      x.e == real(map.expert) && (map.expert == 1 || map.expert_tensor == 1);
  const double own = x.r / real(map.expert_tensor);
  return (sorted ? 0.0 : x.r) + (map.expert > 1 ? own : 0.0) +
         (map.expert_tensor > 1 ? own : 0.0);
}

/// Those of one rank in use and those of the next one on their way, or those of all at
/// once.
double key_rows(const Extents& x, const MemoryRequest& request) {
  const double ranks = real(request.mapping.context);
  if (ranks == 1.0) return 0.0;
  return request.exchange == ContextExchange::kRing ? 4.0 * x.u
                                                    : 2.0 * (1.0 + ranks) * x.u;
}

Extents extents_of(const ModelConfig& config, const MemoryRequest& request) {
  const Mapping& map = request.mapping;
  const double tensor = real(map.tensor);
  Extents x{};
  x.u = real(request.batch.micro * request.batch.sequence) / real(map.context);
  x.t = x.u / tensor;
  x.k = real(config.moe.top_k);
  // In the mean as many rows come as go; each expert-tensor rank sees the rows of all of
  // them. Padded, they are as many as the capacity allows.
  const auto& drop = config.moe.drop;
  x.r = x.t * x.k * real(map.expert_tensor) *
        (drop.active() && drop.pad ? drop.capacity_factor : 1.0);
  x.d = real(config.hidden);
  const double kv_heads = std::max(1.0, real(config.kv_heads) / tensor);
  x.c = 2.0 * kv_heads * real(config.head_dim);
  x.h = real(config.heads) / tensor;
  x.o = x.h * real(config.head_dim);
  x.q = x.o + x.c;
  x.e = real(config.moe.experts);
  x.f = real(config.moe.ffn) / real(map.expert_tensor);
  x.g_dense = real(config.ffn) / tensor;
  x.g_shared = real(config.moe.shared_ffn) / tensor;
  x.vocab = real((config.vocab + map.tensor - 1) / map.tensor);
  x.wide = wide_bytes(request) / real(request.scalar_bytes);
  x.qk_norm = config.qk_norm;
  x.shared_gate = config.moe.shared_gate;
  x.cuts_rows = map.tensor > 1;
  x.waiting = waiting_rows(x, request);
  x.keys = key_rows(x, request);
  return x;
}

/// A logit of head or router in scalars: it is wide, and where that is more than one
/// scalar, its gradient is rounded beside it.
double logit_scalars(const Extents& x) { return x.wide > 1.0 ? x.wide + 1.0 : 1.0; }

/// What `selective` computes again: attention core and the gate and up projections.
double inner_elements(const Extents& x, bool is_moe) {
  const double attention = x.u * (x.o + x.wide * x.h);
  if (!is_moe) return attention + 2.0 * x.u * x.g_dense;
  return attention + 2.0 * x.r * x.f + 2.0 * x.u * x.g_shared;
}

/// What every mode but `full` keeps of a block, its output not counted.
double outer_elements(const Extents& x, bool is_moe, double scalar_bytes) {
  const double attention = x.t * (x.d + x.wide) + x.u * x.q * (x.qk_norm ? 2.0 : 1.0);
  const double middle = x.t * (2.0 * x.d + x.wide);
  if (!is_moe) return attention + middle;
  // Logits, scores, weights; indices in 4 bytes, the permutation twice in 8.
  const double router =
      x.wide * (x.t * (2.0 * x.e + x.k) + x.r) + (20.0 * x.t * x.k) / scalar_bytes;
  const double gate = x.shared_gate ? x.t * (x.d + 1.0) : 0.0;
  return attention + middle + router + gate;
}

/// A SwiGLU in the backward pass: gathered input and gradient, hidden rows, scattered
/// result.
double swiglu_scratch(const Extents& x, double g, bool again) {
  return x.u * g * (again ? 3.0 : 1.0) + (x.cuts_rows ? (3.0 * x.u + x.t) * x.d : 0.0);
}

double shared_scratch(const Extents& x, bool again) {
  return swiglu_scratch(x, x.g_shared, again) + (x.shared_gate ? x.t * (x.d + 1.0) : 0.0);
}

/// Largest scratch of the backward pass of a feed-forward half, with the gradient of its
/// norm. The shared expert works while rows travel to the experts, if any do.
double feed_forward_scratch(const Extents& x, bool is_moe, bool again) {
  if (!is_moe) return x.t * x.d + swiglu_scratch(x, x.g_dense, again);
  const double rows = x.r * (x.d + (again ? 2.0 * x.f : 0.0));
  const double experts = rows + x.r * (x.f + x.wide);
  const double travel = rows + x.waiting * x.d;
  const double shared = x.g_shared > 0.0 ? shared_scratch(x, again) : 0.0;
  const bool beside = x.g_shared > 0.0 && x.waiting > 0.0;
  const double combined = x.r * x.wide + (beside ? x.t * x.d : 0.0);
  const double router = x.t * x.e * logit_scalars(x);
  return x.t * (x.d + x.wide * x.k) +
         std::max({experts, beside ? travel + shared : shared, travel + combined, router});
}

double attention_scratch(const Extents& x, bool again) {
  const double gathered = x.cuts_rows ? x.u * x.d : 0.0;
  const double core = x.u * (x.o + x.wide * x.h) + x.keys * x.c + gathered;
  const double projection = x.t * x.d + 2.0 * gathered;
  return x.u * x.q + std::max(core, projection) +
         (again ? x.u * (x.o + x.wide * x.h) : 0.0);
}

double block_scratch(const Extents& x, bool is_moe, bool again) {
  return std::max(feed_forward_scratch(x, is_moe, again), attention_scratch(x, again));
}

/// Tokens whose logits are held at once, as model/head.cpp has it.
double head_chunk_tokens(const Extents& x, double scalar_bytes) {
  constexpr double kChunkBytes = 32.0 * 1024 * 1024;
  constexpr double kSmallestChunk = 128.0;
  return std::min(x.u,
                  std::max(kSmallestChunk,
                           kChunkBytes / (x.vocab * logit_scalars(x) * scalar_bytes)));
}

/// Kept of one micro-batch by a chunk: the input of each layer, the output of the last
/// one, and what the layers keep themselves.
double kept_elements(const ChunkLoad& chunk, const Extents& x, Recompute recompute,
                     double scalar_bytes) {
  double sum = x.t * x.d;
  for (const bool is_moe : {true, false}) {
    const double layers = real(is_moe ? chunk.moe_layers : chunk.dense_layers);
    sum += layers * x.t * x.d;
    if (recompute != Recompute::kFull)
      sum += layers * outer_elements(x, is_moe, scalar_bytes);
    if (recompute == Recompute::kNone) sum += layers * inner_elements(x, is_moe);
  }
  return sum;
}

void add_workspace(const MemoryRequest& request, const StageLoad& stage, const Extents& x,
                   MemoryUse& use) {
  const double bytes = real(request.scalar_bytes);
  const bool again = request.recompute == Recompute::kSelective;
  const double block =
      largest(stage, [&](bool is_moe) { return block_scratch(x, is_moe, again); });
  const double logits =
      stage.head ? head_chunk_tokens(x, bytes) * x.vocab * logit_scalars(x) : 0.0;
  // The head sees the rows of all tensor ranks, and scatters their gradients.
  const double head =
      stage.head ? x.t * x.d + logits + (x.cuts_rows ? 2.0 * x.u * x.d : 0.0) : 0.0;
  // Between stages: what comes next and what is still on its way out.
  const double messages = request.mapping.pipeline > 1 ? 2.0 * x.t * x.d : 0.0;
  use.logits = bytes * logits;
  use.workspace = bytes * (x.t * x.d + messages + std::max(block, head));
}

}  // namespace

double MemoryUse::total() const {
  return parameters + gradients + optimizer + reduction + activations + recomputed +
         workspace + program;
}

MemoryUse training_memory(const ModelConfig& config, const MemoryRequest& request) {
  PLEAT_ASSERT(request.mapping.pipeline == 1 || !request.stage.chunks.empty(),
               "memory of which of {} stages?", request.mapping.pipeline);
  const StageLoad stage =
      request.stage.chunks.empty() ? whole_model(config) : request.stage;
  const Extents x = extents_of(config, request);
  const double bytes = real(request.scalar_bytes);
  MemoryUse use;
  add_state(config, request, stage, use);
  for (const ChunkLoad& chunk : stage.chunks) {
    use.activations += bytes * real(chunk.micro_batches) *
                       kept_elements(chunk, x, request.recompute, bytes);
  }
  if (stage.head) use.activations += bytes * x.t * (x.d + x.wide);  // final norm
  if (request.recompute == Recompute::kFull) {
    use.recomputed =
        bytes * largest(stage, [&](bool is_moe) {
          return x.t * x.d + outer_elements(x, is_moe, bytes) + inner_elements(x, is_moe);
        });
  }
  add_workspace(request, stage, x, use);
  use.program = kProgramBytes;
  return use;
}

}  // namespace pleat::plan
