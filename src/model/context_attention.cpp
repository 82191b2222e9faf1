// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/context_attention.hpp"

#include <array>
#include <cmath>
#include <utility>

#include "pleat/base/copy.hpp"
#include "pleat/kernels/attention.hpp"
#include "pleat/model/tensor_rows.hpp"

namespace pleat::model {
namespace {

using comm::Axis;
using comm::GroupName;
using kernels::AttentionShape;
using kernels::Pieces;
using plan::ContextExchange;

template <class T>
Accumulator<T> scale_of(const plan::ModelConfig& part) {
  return static_cast<Accumulator<T>>(1.0 / std::sqrt(static_cast<double>(part.head_dim)));
}

/// Two chunks meet: a of this rank's queries, b of the keys of another rank.
struct Pair {
  AttentionShape shape;
  Pieces pieces = Pieces::kFirst;
};

/// The chunks that a rank holds of each sequence, and how they meet.
struct Chunks {
  std::int64_t ranks = 1;
  std::int64_t rank = 0;
  std::int64_t size = 0;  ///< rows of a chunk

  std::array<std::int64_t, 2> held_by(std::int64_t r) const { return {r, 2 * ranks - 1 - r}; }

  /// The pairs in which the keys of rank `source` take part; the keys lie alone in an array.
  std::vector<Pair> pairs_with(std::int64_t source, const plan::ModelConfig& part,
                               std::int64_t batch) const {
    std::vector<Pair> pairs;
    for (std::int64_t a = 0; a < 2; ++a) {
      for (std::int64_t b = 0; b < 2; ++b) {
        const std::int64_t query_chunk = held_by(rank)[static_cast<std::size_t>(a)];
        const std::int64_t key_chunk = held_by(source)[static_cast<std::size_t>(b)];
        if (key_chunk > query_chunk) continue;
        // The own keys come first, and of them the lower chunk, which every query sees.
        const bool first = source == rank && b == 0;
        pairs.push_back({{.batch = batch,
                          .queries = size,
                          .keys = size,
                          .heads = part.heads,
                          .kv_heads = part.kv_heads,
                          .head_dim = part.head_dim,
                          .first_query = a * size,
                          .query_stride = 2 * size,
                          .first_key = b * size,
                          .key_stride = 2 * size,
                          .diagonal = key_chunk == query_chunk ? 0 : size,
                          .k_column = 0,
                          .v_column = part.kv_heads * part.head_dim},
                         first ? Pieces::kFirst : Pieces::kFurther});
      }
    }
    return pairs;
  }
};

Chunks chunks_of(const Context& context, const MicroBatch& batch) {
  return {context.grid.degree(Axis::kContext), context.grid.coordinate(Axis::kContext),
          batch.sequence / 2};
}

/// The key and value columns of a fused projection.
template <class T>
auto kv_columns(const plan::ModelConfig& part, const DeviceView<T, 2>& qkv_UQ) {
  const auto q = static_cast<std::size_t>(part.q_size());
  return Kokkos::subview(qkv_UQ, Kokkos::ALL, std::pair(q, qkv_UQ.extent(1)));
}

template <class T>
DeviceView<T, 2> take_kv(Arena& arena, const plan::ModelConfig& part, std::size_t rows) {
  return arena.take<T>(rows, 2 * part.kv_heads * part.head_dim);
}

/// Part `index` of a buffer of equal parts with so many rows.
template <class T>
DeviceView<T, 2> part_of(const DeviceView<T, 2>& all, std::int64_t index, std::size_t rows) {
  return DeviceView<T, 2>(
      all.data() + index * static_cast<std::int64_t>(rows * all.extent(1)), rows, all.extent(1));
}

/// Keys and values of one context rank after the other, this rank's own first, then those of
/// rank - 1, rank - 2, ...; the next ones travel meanwhile.
template <class T>
class KeySource {
 public:
  KeySource(const Context& context, ContextExchange exchange, const plan::ModelConfig& part,
            const DeviceView<const T, 2>& qkv_UQ)
      : group_(context.grid.group(GroupName::kContext)), exchange_(exchange) {
    rows_ = qkv_UQ.extent(0);
    here_ = take_kv<T>(context.scratch, part, rows_);
    Kokkos::deep_copy(context.exec, here_, kv_columns<const T>(part, qkv_UQ));
    if (exchange == ContextExchange::kRing) {
      next_ = take_kv<T>(context.scratch, part, rows_);
      return;
    }
    all_ = take_kv<T>(context.scratch, part, rows_ * static_cast<std::size_t>(group_.size()));
    group_.all_gather(flat(here_), flat(all_));
  }

  /// The rank whose keys come in step `step`.
  std::int64_t source(int step) const {
    return (group_.rank() - step + group_.size()) % group_.size();
  }

  /// Calls work(source rank, keys and values) for every context rank.
  template <class Work>
  void for_each(const Work& work) {
    for (int step = 0; step < group_.size(); ++step) {
      if (exchange_ == ContextExchange::kAllGather) {
        work(source(step), part_of<T>(all_, source(step), rows_));
        continue;
      }
      if (step + 1 == group_.size()) {
        work(source(step), here_);
        continue;
      }
      comm::Pending sent = group_.send(flat(here_), (group_.rank() + 1) % group_.size(), step);
      comm::Pending received = group_.receive(
          flat(next_), (group_.rank() - 1 + group_.size()) % group_.size(), step);
      work(source(step), here_);
      sent.wait();
      received.wait();
      std::swap(here_, next_);
    }
  }

 private:
  comm::Communicator& group_;
  ContextExchange exchange_;
  std::size_t rows_ = 0;
  DeviceView<T, 2> here_;
  DeviceView<T, 2> next_;
  DeviceView<T, 2> all_;
};

/// Gradients of keys and values: they follow the ring one step behind the keys, each rank
/// adding its share, or are summed at the end.
template <class T>
class KeyGradients {
 public:
  KeyGradients(const Context& context, ContextExchange exchange, const plan::ModelConfig& part,
               std::size_t rows)
      : group_(context.grid.group(GroupName::kContext)),
        exchange_(exchange),
        rows_(rows) {
    here_ = take_kv<T>(context.scratch, part, rows);
    if (exchange == ContextExchange::kRing) {
      next_ = take_kv<T>(context.scratch, part, rows);
      fill_tensor(context.exec, here_, T(0));
      return;
    }
    all_ = take_kv<T>(context.scratch, part, rows * static_cast<std::size_t>(group_.size()));
    fill_tensor(context.exec, all_, T(0));
  }

  /// Where the gradients of the keys of `source` accumulate.
  DeviceView<T, 2> of(std::int64_t source) const {
    return exchange_ == ContextExchange::kRing ? here_ : part_of<T>(all_, source, rows_);
  }

  /// After the work on one source: hands its gradients on to the rank that has its keys next,
  /// at last to the source itself.
  void pass_on(int step) {
    if (exchange_ == ContextExchange::kAllGather) return;
    const int tag = group_.size() + step;
    comm::Pending sent = group_.send(flat(here_), (group_.rank() + 1) % group_.size(), tag);
    comm::Pending received = group_.receive(
        flat(next_), (group_.rank() - 1 + group_.size()) % group_.size(), tag);
    sent.wait();
    received.wait();
    std::swap(here_, next_);
  }

  /// This rank's own, summed over all ranks.
  DeviceView<T, 2> own() {
    if (exchange_ == ContextExchange::kAllGather) {
      group_.reduce_scatter(flat(all_), flat(here_));
    }
    return here_;
  }

 private:
  comm::Communicator& group_;
  ContextExchange exchange_;
  std::size_t rows_;
  DeviceView<T, 2> here_;
  DeviceView<T, 2> next_;
  DeviceView<T, 2> all_;
};

AttentionShape whole_shape(const plan::ModelConfig& part, const MicroBatch& batch) {
  return kernels::fused_attention_shape(batch.sequences, batch.sequence, part.heads,
                                        part.kv_heads, part.head_dim);
}

}  // namespace

std::vector<std::int64_t> context_positions(std::int64_t sequence, std::int64_t ranks,
                                            std::int64_t rank) {
  std::vector<std::int64_t> positions;
  if (ranks == 1) {
    for (std::int64_t s = 0; s < sequence; ++s) positions.push_back(s);
    return positions;
  }
  const Chunks chunks{ranks, rank, sequence / (2 * ranks)};
  for (const std::int64_t chunk : chunks.held_by(rank)) {
    for (std::int64_t s = 0; s < chunks.size; ++s) positions.push_back(chunk * chunks.size + s);
  }
  return positions;
}

template <class T>
void attend(const Context& context, const plan::ModelConfig& part, const MicroBatch& batch,
            ContextExchange exchange, const DeviceView<const T, 2>& qkv_UQ,
            const DeviceView<T, 2>& o_UO, const DeviceView<Accumulator<T>, 2>& lse_HU) {
  const ArenaScope scope(context.scratch);
  if (context.grid.degree(Axis::kContext) == 1) {
    kernels::attention_forward<T>(context.exec, whole_shape(part, batch), scale_of<T>(part),
                                  Pieces::kFirst, qkv_UQ, qkv_UQ, context.scratch, o_UO, lse_HU);
    return;
  }
  const Chunks chunks = chunks_of(context, batch);
  KeySource<T> keys(context, exchange, part, qkv_UQ);
  keys.for_each([&](std::int64_t source, const DeviceView<T, 2>& kv_UR) {
    for (const Pair& pair : chunks.pairs_with(source, part, batch.sequences)) {
      kernels::attention_forward<T>(context.exec, pair.shape, scale_of<T>(part), pair.pieces,
                                    qkv_UQ, kv_UR, context.scratch, o_UO, lse_HU);
    }
  });
}

template <class T>
void attend_backward(const Context& context, const plan::ModelConfig& part,
                     const MicroBatch& batch, ContextExchange exchange,
                     const DeviceView<const T, 2>& qkv_UQ, const DeviceView<const T, 2>& o_UO,
                     const DeviceView<const Accumulator<T>, 2>& lse_HU,
                     const DeviceView<const T, 2>& do_UO, const DeviceView<T, 2>& dqkv_UQ) {
  const ArenaScope scope(context.scratch);
  const auto delta_HU = context.scratch.take<Accumulator<T>>(part.heads, qkv_UQ.extent(0));
  kernels::attention_delta<T>(context.exec, part.heads, part.head_dim, o_UO, do_UO, delta_HU);
  if (context.grid.degree(Axis::kContext) == 1) {
    kernels::attention_backward<T>(context.exec, whole_shape(part, batch), scale_of<T>(part),
                                   Pieces::kFirst, false, qkv_UQ, qkv_UQ, o_UO, lse_HU, delta_HU,
                                   do_UO, context.scratch, dqkv_UQ, dqkv_UQ);
    return;
  }
  const Chunks chunks = chunks_of(context, batch);
  KeySource<T> keys(context, exchange, part, qkv_UQ);
  KeyGradients<T> gradients(context, exchange, part, qkv_UQ.extent(0));
  int step = 0;
  keys.for_each([&](std::int64_t source, const DeviceView<T, 2>& kv_UR) {
    for (const Pair& pair : chunks.pairs_with(source, part, batch.sequences)) {
      kernels::attention_backward<T>(context.exec, pair.shape, scale_of<T>(part), pair.pieces,
                                     true, qkv_UQ, kv_UR, o_UO, lse_HU, delta_HU,
                                     do_UO, context.scratch, dqkv_UQ, gradients.of(source));
    }
    gradients.pass_on(step++);
  });
  Kokkos::deep_copy(context.exec, kv_columns<T>(part, dqkv_UQ), gradients.own());
}

#define PLEAT_INSTANTIATE(T)                                                                  \
  template void attend<T>(const Context&, const plan::ModelConfig&, const MicroBatch&,        \
                          ContextExchange, const DeviceView<const T, 2>&,                     \
                          const DeviceView<T, 2>&, const DeviceView<Accumulator<T>, 2>&);     \
  template void attend_backward<T>(                                                           \
      const Context&, const plan::ModelConfig&, const MicroBatch&, ContextExchange,           \
      const DeviceView<const T, 2>&, const DeviceView<const T, 2>&,                           \
      const DeviceView<const Accumulator<T>, 2>&, const DeviceView<const T, 2>&,              \
      const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::model
