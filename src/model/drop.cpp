// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/drop.hpp"

#include <algorithm>

#include "pleat/kernels/capacity.hpp"

namespace pleat::model {

namespace {

using comm::Axis;
using Index = std::int64_t;
using Range = Kokkos::RangePolicy<ExecSpace, Kokkos::IndexType<Index>>;

kernels::CapacityOptions capacity_options(const plan::MoeConfig& moe) {
  return {moe.experts, moe.drop.capacity_factor,
          moe.drop.policy == plan::DropPolicy::kProbs};
}

/// \brief How the ranks of cp*tp (context slower) share the sequences of a micro-batch.
struct SequenceCut {
  Index context = 1;   ///< degree
  Index tensor = 1;    ///< degree
  Index sequence = 0;  ///< positions of a sequence that a context rank holds
  Index rows = 0;      ///< of a rank

  Index ranks() const { return context * tensor; }
  /// \brief Place of row `row` of the rank in [sequence, position].
  KOKKOS_INLINE_FUNCTION Index place(Index rank, Index row) const {
    const Index held = rank % tensor * rows + row;
    return held / sequence * (sequence * context) +
           position_in_sequence(held % sequence, sequence, context, rank / tensor);
  }
};

SequenceCut sequence_cut(const comm::Grid& grid, const MicroBatch& batch) {
  return {grid.degree(Axis::kContext), grid.degree(Axis::kTensor), batch.sequence,
          batch.tokens()};
}

/// \brief Every rank's value_TK in the order [sequence, position].
template <class V>
DeviceView<V, 2> gather_in_order(const Context& context, const SequenceCut& cut,
                                 const DeviceView<const V, 2>& value_TK) {
  const Index rows = cut.ranks() * cut.rows;
  const Index choices = value_TK.extent(1);
  const auto value_NK = context.scratch.take<V>(rows, choices);
  const ArenaScope scope(context.scratch);
  const auto gathered = context.scratch.take<V>(rows * choices);
  context.grid.group(comm::GroupName::kContextTensor)
      .all_gather(DeviceView<const V, 1>(value_TK.data(), value_TK.size()), gathered);
  Kokkos::parallel_for(
      "pleat::model::drop_over_capacity::order", Range(context.exec, 0, rows * choices),
      KOKKOS_LAMBDA(Index pair) {
        const Index n = pair / choices;
        value_NK(cut.place(n / cut.rows, n % cut.rows), pair % choices) = gathered(pair);
      });
  return value_NK;
}

template <class A>
void drop_over_sequences(const Context& context, const plan::MoeConfig& moe,
                         const MicroBatch& batch,
                         const DeviceView<const std::int32_t, 2>& index_TK,
                         const DeviceView<const A, 2>& weight_TK,
                         const DeviceView<std::int32_t, 2>& sent_TK) {
  const SequenceCut cut = sequence_cut(context.grid, batch);
  const Index own = context.grid.coordinate(Axis::kContext) * cut.tensor +
                    context.grid.coordinate(Axis::kTensor);
  const Index choices = index_TK.extent(1);
  const auto options = capacity_options(moe);
  const ArenaScope scope(context.scratch);
  const auto index_NK = gather_in_order<std::int32_t>(context, cut, index_TK);
  DeviceView<A, 2> weight_NK;
  if (options.by_weight) weight_NK = gather_in_order<A>(context, cut, weight_TK);
  const auto sent_NK =
      context.scratch.take<std::int32_t>(cut.ranks() * cut.rows, choices);
  kernels::mark_over_capacity<A>(context.exec, options,
                                 {batch.sequences, batch.sequence * cut.context, 0},
                                 index_NK, weight_NK, context.scratch, sent_NK);
  Kokkos::parallel_for(
      "pleat::model::drop_over_capacity::take", Range(context.exec, 0, sent_TK.size()),
      KOKKOS_LAMBDA(Index pair) {
        const Index t = pair / choices;
        const Index k = pair % choices;
        sent_TK(t, k) = sent_NK(cut.place(own, t), k);
      });
}

/// \brief The most rows that an expert gets of the sequences' parts on a rank: of each
/// its capacity, but not more than there are.
Index capacity_of_rank(const plan::MoeConfig& moe, const SequenceCut& cut,
                       Index first_row) {
  Index total = 0;
  Index row = first_row;
  const Index end = first_row + cut.rows;
  while (row < end) {
    const Index next = std::min((row / cut.sequence + 1) * cut.sequence, end);
    const Index held = next - row;
    const bool whole = moe.drop.scope == plan::DropScope::kSequence;
    total +=
        std::min(held, expert_capacity(moe, whole ? cut.sequence * cut.context : held));
    row = next;
  }
  return total;
}

}  // namespace

std::int64_t expert_capacity(const plan::MoeConfig& moe, std::int64_t tokens) {
  return kernels::expert_capacity(capacity_options(moe), tokens, moe.top_k);
}

std::int64_t capacity_rows(const plan::MoeConfig& moe, const MicroBatch& batch,
                           const comm::Grid& grid) {
  const SequenceCut cut = sequence_cut(grid, batch);
  Index largest = 0;
  for (Index rank = 0; rank < cut.tensor; ++rank) {
    largest = std::max(largest, capacity_of_rank(moe, cut, rank * cut.rows));
  }
  return largest;
}

template <class T>
void drop_over_capacity(const Context& context, const plan::MoeConfig& moe,
                        const MicroBatch& batch,
                        const DeviceView<const std::int32_t, 2>& index_TK,
                        const DeviceView<const Accumulator<T>, 2>& weight_TK,
                        const DeviceView<std::int32_t, 2>& sent_TK) {
  using A = Accumulator<T>;
  const bool whole = moe.drop.scope == plan::DropScope::kSequence;
  if (whole && context.grid.group(comm::GroupName::kContextTensor).size() > 1) {
    drop_over_sequences<A>(context, moe, batch, index_TK, weight_TK, sent_TK);
    return;
  }
  kernels::mark_over_capacity<A>(context.exec, capacity_options(moe),
                                 {batch.sequences, batch.sequence, batch.first_row},
                                 index_TK, weight_TK, context.scratch, sent_TK);
}

#define PLEAT_INSTANTIATE_DROP(T)                                \
  template void drop_over_capacity<T>(                           \
      const Context&, const plan::MoeConfig&, const MicroBatch&, \
      const DeviceView<const std::int32_t, 2>&,                  \
      const DeviceView<const Accumulator<T>, 2>&, const DeviceView<std::int32_t, 2>&);

PLEAT_INSTANTIATE_DROP(float)
PLEAT_INSTANTIATE_DROP(double)
#undef PLEAT_INSTANTIATE_DROP

}  // namespace pleat::model
