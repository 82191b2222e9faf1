// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/capacity.hpp"

#include "pleat/kernels/permute.hpp"
#include "row_groups.hpp"
#include "rows.hpp"

namespace pleat::kernels {

using detail::check_extents;
using detail::HeldGroups;
using detail::Index;
using detail::RowTeam;

namespace {

using Range = Kokkos::RangePolicy<ExecSpace, Kokkos::IndexType<Index>>;

/// \brief Weights that are not negative are ordered as their bits are.
template <class A>
using Key = std::conditional_t<sizeof(A) == 4, std::uint32_t, std::uint64_t>;

/// \brief The bits of a weight, rounded to 33 (fp32: 17) significant ones.
template <class A>
KOKKOS_INLINE_FUNCTION Key<A> key_of(A weight) {
  constexpr int kDropped = sizeof(A) == 4 ? 7 : 20;
  const auto bits = Kokkos::bit_cast<Key<A>>(weight);
  return (bits + (Key<A>(1) << (kDropped - 1))) >> kDropped;
}

// A bin holds the pairs of one expert in one group, in their order. It keeps those with a
// key above the threshold and those with the threshold itself among its first `limit`
// pairs.
template <class A>
struct Bins {
  DeviceView<std::int32_t, 2> bin_NK;  ///< of each pair, or -1
  Permutation permutation;             ///< of the pairs by bins
  DeviceView<Key<A>, 1> key_R;         ///< in the order of the permutation
  DeviceView<Key<A>, 1> threshold_B;
  DeviceView<Index, 1> limit_B;
};

template <class A>
Bins<A> take_bins(Arena& arena, Index rows, Index choices, Index bins) {
  return {arena.take<std::int32_t>(rows, choices),
          {arena.take<Index>(bins + 1), arena.take<Index>(rows, choices)},
          arena.take<Key<A>>(rows * choices),
          arena.take<Key<A>>(bins),
          arena.take<Index>(bins)};
}

void assign_bins(const ExecSpace& exec, const HeldGroups& held, Index experts,
                 const DeviceView<const std::int32_t, 2>& index_NK,
                 const DeviceView<std::int32_t, 2>& bin_NK) {
  const Index choices = index_NK.extent(1);
  Kokkos::parallel_for(
      "pleat::kernels::mark_over_capacity::assign_bins", Range(exec, 0, index_NK.size()),
      KOKKOS_LAMBDA(Index pair) {
        const Index n = pair / choices;
        const std::int32_t e = index_NK.data()[pair];
        const Index bin = held.held_group(n) * experts + e;
        bin_NK.data()[pair] = e >= 0 ? static_cast<std::int32_t>(bin) : -1;
      });
}

/// \brief The key of each pair, in the order of the bins; 0 for all without by_weight.
template <class A>
void sort_keys(const ExecSpace& exec, bool by_weight,
               const DeviceView<const A, 2>& weight_NK, const Bins<A>& bins) {
  const auto row_NK = bins.permutation.row_TK;
  const auto key_R = bins.key_R;
  Kokkos::parallel_for(
      "pleat::kernels::mark_over_capacity::sort_keys", Range(exec, 0, row_NK.size()),
      KOKKOS_LAMBDA(Index pair) {
        const Index row = row_NK.data()[pair];
        if (row < 0) return;
        key_R(row) = by_weight ? key_of(weight_NK.data()[pair]) : Key<A>(0);
      });
}

/// \brief The capacity-th largest of the keys, which are more than that: the largest
/// threshold that so many reach, found bit by bit.
template <class K>
KOKKOS_INLINE_FUNCTION K find_threshold(const RowTeam& team, const K* keys, Index count,
                                        Index capacity) {
  K threshold = 0;
  for (int bit = 8 * static_cast<int>(sizeof(K)) - 1; bit >= 0; --bit) {
    const K candidate = threshold | K{1} << bit;
    const Index reach = team.template sum<Index>(
        count, [&](Index i) { return keys[i] >= candidate ? Index{1} : Index{0}; });
    if (reach >= capacity) threshold = candidate;
  }
  return threshold;
}

/// \brief The smallest number of first keys among which `wanted` equal the threshold.
template <class K>
KOKKOS_INLINE_FUNCTION Index find_limit(const RowTeam& team, const K* keys, Index count,
                                        K threshold, Index wanted) {
  Index low = 0;
  Index high = count;
  while (low < high) {
    const Index middle = (low + high) / 2;
    const Index equal = team.template sum<Index>(
        middle, [&](Index i) { return keys[i] == threshold ? Index{1} : Index{0}; });
    if (equal >= wanted) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

template <class A>
void find_thresholds(const ExecSpace& exec, const CapacityOptions& options,
                     const HeldGroups& held, Index choices, const Bins<A>& bins) {
  const auto offsets_B1 = bins.permutation.offsets_E1;
  const auto key_R = bins.key_R;
  const auto threshold_B = bins.threshold_B;
  const auto limit_B = bins.limit_B;
  const Index experts = options.experts;
  const Index even = held.largest() * choices / experts;
  detail::for_each_row(
      "pleat::kernels::mark_over_capacity::find_thresholds", exec, limit_B.extent(0),
      even, KOKKOS_LAMBDA(const RowTeam& team, Index bin) {
        const Index group = bin / experts;
        const Index capacity =
            expert_capacity(options, held.end(group) - held.begin(group), choices);
        const Key<A>* keys = key_R.data() + offsets_B1(bin);
        const Index count = offsets_B1(bin + 1) - offsets_B1(bin);
        Key<A> threshold = 0;
        Index limit = Kokkos::min(count, capacity);
        if (options.by_weight && count > capacity) {
          threshold = find_threshold(team, keys, count, capacity);
          const Index above = team.template sum<Index>(
              count, [&](Index i) { return keys[i] > threshold ? Index{1} : Index{0}; });
          limit = find_limit(team, keys, count, threshold, capacity - above);
        }
        team.once([&] {
          threshold_B(bin) = threshold;
          limit_B(bin) = limit;
        });
      });
}

template <class A>
void mark_pairs(const ExecSpace& exec, const DeviceView<const std::int32_t, 2>& index_NK,
                const Bins<A>& bins, const DeviceView<std::int32_t, 2>& sent_NK) {
  Kokkos::parallel_for(
      "pleat::kernels::mark_over_capacity::mark_pairs", Range(exec, 0, sent_NK.size()),
      KOKKOS_LAMBDA(Index pair) {
        const Index bin = bins.bin_NK.data()[pair];
        bool taken = bin >= 0;
        if (taken) {
          const Index row = bins.permutation.row_TK.data()[pair];
          const Key<A> key = bins.key_R(row);
          const Index place = row - bins.permutation.offsets_E1(bin);
          taken = key > bins.threshold_B(bin) ||
                  (key == bins.threshold_B(bin) && place < bins.limit_B(bin));
        }
        sent_NK.data()[pair] = taken ? index_NK.data()[pair] : -1;
      });
}

}  // namespace

template <class A>
void mark_over_capacity(const ExecSpace& exec, const CapacityOptions& options,
                        const RowGroups& rows,
                        const DeviceView<const std::int32_t, 2>& index_NK,
                        const DeviceView<const A, 2>& weight_NK, Arena& scratch,
                        const DeviceView<std::int32_t, 2>& sent_NK) {
  constexpr const char* kLabel = "pleat::kernels::mark_over_capacity";
  const Index tokens = index_NK.extent(0);
  const Index choices = index_NK.extent(1);
  PLEAT_ASSERT(options.experts > 0 && options.factor > 0.0, "{}: {} experts, factor {}",
               kLabel, options.experts, options.factor);
  check_extents(kLabel, "sent_NK", sent_NK, tokens, choices);
  if (options.by_weight) check_extents(kLabel, "weight_NK", weight_NK, tokens, choices);
  if (tokens == 0) return;
  const HeldGroups held = detail::held_groups(kLabel, rows, tokens);
  const ArenaScope scope(scratch);
  const Index count = held.count * options.experts;
  const Bins<A> bins = take_bins<A>(scratch, tokens, choices, count);
  assign_bins(exec, held, options.experts, index_NK, bins.bin_NK);
  make_permutation(exec, bins.bin_NK, count, scratch, bins.permutation);
  sort_keys<A>(exec, options.by_weight, weight_NK, bins);
  find_thresholds<A>(exec, options, held, choices, bins);
  mark_pairs<A>(exec, index_NK, bins, sent_NK);
}

#define PLEAT_INSTANTIATE_CAPACITY(A)                                                  \
  template void mark_over_capacity<A>(                                                 \
      const ExecSpace&, const CapacityOptions&, const RowGroups&,                      \
      const DeviceView<const std::int32_t, 2>&, const DeviceView<const A, 2>&, Arena&, \
      const DeviceView<std::int32_t, 2>&);

PLEAT_INSTANTIATE_CAPACITY(float)
PLEAT_INSTANTIATE_CAPACITY(double)
#undef PLEAT_INSTANTIATE_CAPACITY

}  // namespace pleat::kernels
