// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief One kernel body for rows on hosts and devices.
///
/// for_each_row gives every row to a team: a group of threads on a device, one thread
/// with its vector unit on a host. The body says what happens to the elements of the row
/// through the team, and never sees the difference:
///
///     for_each_row("label", exec, rows, length, KOKKOS_LAMBDA(const RowTeam& team, Index
///     t) {
///       const A sum = team.sum<A>(length, [&](Index d) { return x[d] * x[d]; });
///       team.for_each(length, [&](Index d) { y[d] = x[d] / sum; });
///     });
///
/// Sums have a fixed order that depends neither on the number of host threads nor on
/// timing. Sums over rows are formed in blocks of kBlockRows, whose partial results are
/// then added in the order of the blocks (add_partial_rows).

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "pleat/base/arena.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/types.hpp"

// The compiler of a device takes no OpenMP pragmas and needs none: HostTeam is not used
// there.
#if defined(__CUDACC__) || defined(__HIPCC__) || defined(SYCL_LANGUAGE_VERSION)
#define PLEAT_SIMD
#define PLEAT_SIMD_REDUCTION(operation, variable)
#else
#define PLEAT_PRAGMA(text) _Pragma(#text)
#define PLEAT_SIMD PLEAT_PRAGMA(omp simd)
#define PLEAT_SIMD_REDUCTION(operation, variable) \
  PLEAT_PRAGMA(omp simd reduction(operation : variable))
#endif

namespace pleat::kernels::detail {

using Index = std::int64_t;

inline constexpr bool kOnHost =
    std::is_same_v<ExecSpace, Kokkos::DefaultHostExecutionSpace>;

/// \brief Rows whose contributions to a sum over rows are added up first.
inline constexpr Index kBlockRows = 32;

/// \brief One host thread; its loops are vectorised.
struct HostTeam {
  template <class Body>
  KOKKOS_FORCEINLINE_FUNCTION void for_each(Index count, const Body& body) const {
    PLEAT_SIMD
    for (Index i = 0; i < count; ++i) body(i);
  }
  template <class A, class Body>
  KOKKOS_FORCEINLINE_FUNCTION A sum(Index count, const Body& body) const {
    A total = 0;
    PLEAT_SIMD_REDUCTION(+, total)
    for (Index i = 0; i < count; ++i) total += body(i);
    return total;
  }
  /// \brief The largest value, or `lowest` when there is none above it.
  template <class A, class Body>
  KOKKOS_FORCEINLINE_FUNCTION A maximum(Index count, A lowest, const Body& body) const {
    A result = lowest;
    PLEAT_SIMD_REDUCTION(max, result)
    for (Index i = 0; i < count; ++i) {
      const A value = body(i);
      result = value > result ? value : result;
    }
    return result;
  }
  /// \brief to = from; the two do not overlap. By bytes: element by element, the compiler
  /// would move a Bf16 at a time.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void copy(Index count, const T* from, T* to) const {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
  }
  /// \brief Asks for memory that the team reads soon: the hardware does so only where rows
  /// are long or lie in one page. The address may lie outside of arrays.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void fetch(const T* from, Index count) const {
    const char* const begin = reinterpret_cast<const char*>(from);
    const Index bytes = count * static_cast<Index>(sizeof(T));
    for (Index i = 0; i < bytes; i += 64) __builtin_prefetch(begin + i);
  }
  template <class Body>
  KOKKOS_FORCEINLINE_FUNCTION void once(const Body& body) const {
    body();
  }
  KOKKOS_FORCEINLINE_FUNCTION void barrier() const {}
};

/// \brief A team of device threads.
struct DeviceTeam {
  using Member = typename Kokkos::TeamPolicy<ExecSpace>::member_type;
  const Member& member;

  template <class Body>
  KOKKOS_INLINE_FUNCTION void for_each(Index count, const Body& body) const {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(member, count), body);
  }
  template <class A, class Body>
  KOKKOS_INLINE_FUNCTION A sum(Index count, const Body& body) const {
    A total = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(member, count),
        [&](const Index i, A& partial) { partial += body(i); }, total);
    return total;
  }
  template <class A, class Body>
  KOKKOS_INLINE_FUNCTION A maximum(Index count, A lowest, const Body& body) const {
    A result = lowest;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(member, count),
        [&](const Index i, A& partial) {
          const A value = body(i);
          partial = value > partial ? value : partial;
        },
        Kokkos::Max<A>(result));
    return result > lowest ? result : lowest;
  }
  template <class T>
  KOKKOS_INLINE_FUNCTION void copy(Index count, const T* from, T* to) const {
    for_each(count, [&](Index i) { to[i] = from[i]; });
  }
  /// \brief On a device other teams run while this one waits.
  template <class T>
  KOKKOS_INLINE_FUNCTION void fetch(const T*, Index) const {}
  /// \brief By one thread; the others do not wait.
  template <class Body>
  KOKKOS_INLINE_FUNCTION void once(const Body& body) const {
    Kokkos::single(Kokkos::PerTeam(member), body);
  }
  /// \brief What the team wrote before is seen by all of it after.
  KOKKOS_INLINE_FUNCTION void barrier() const { member.team_barrier(); }
};

using RowTeam = std::conditional_t<kOnHost, HostTeam, DeviceTeam>;

/// \brief Calls the body of for_each_row with a host thread as the team.
template <class Body>
struct HostRow {
  Body body;
  KOKKOS_FORCEINLINE_FUNCTION void operator()(Index row) const { body(HostTeam{}, row); }
};

/// \brief Calls the body of for_each_row with a team of device threads.
template <class Body>
struct DeviceRow {
  Body body;
  KOKKOS_INLINE_FUNCTION void operator()(const DeviceTeam::Member& member) const {
    body(DeviceTeam{member}, static_cast<Index>(member.league_rank()));
  }
};

/// \brief Threads of a device team for rows of that length: a few elements for each, and
/// no fewer than the device runs in step (32 on NVIDIA, 64 on AMD's MI series).
inline int team_size_for(Index length) {
  int size = Kokkos::TeamPolicy<ExecSpace>::vector_length_max();
  while (size < 256 && size * 4 < length) size *= 2;
  return size;
}

/// \brief Runs body(team, row) for row = 0 .. rows - 1.
/// \param length  typical number of elements that the team works on together
template <class Body>
void for_each_row(const std::string& label, const ExecSpace& exec, Index rows,
                  Index length, const Body& body) {
  if (rows == 0) return;
  if constexpr (kOnHost) {
    Kokkos::parallel_for(
        label, Kokkos::RangePolicy<ExecSpace, Kokkos::IndexType<Index>>(exec, 0, rows),
        HostRow<Body>{body});
  } else {
    Kokkos::parallel_for(label,
                         Kokkos::TeamPolicy<ExecSpace>(exec, static_cast<int>(rows),
                                                       team_size_for(length)),
                         DeviceRow<Body>{body});
  }
}

inline Index blocks_of(Index count, Index block) { return (count + block - 1) / block; }

/// \brief sum_D += the rows of partial_BD, added in their order.
template <class A, class T>
void add_partial_rows(const std::string& label, const ExecSpace& exec,
                      const DeviceView<const A, 2>& partial_BD,
                      const DeviceView<T, 1>& sum_D) {
  constexpr Index kColumns = 64;  // a slab keeps its lines of partial_BD in the cache
  const Index blocks = partial_BD.extent_int(0);
  const Index columns = partial_BD.extent_int(1);
  for_each_row(
      label, exec, blocks_of(columns, kColumns), kColumns,
      KOKKOS_LAMBDA(const RowTeam& team, Index slab) {
        const Index first = slab * kColumns;
        const Index last = first + kColumns < columns ? first + kColumns : columns;
        team.for_each(last - first, [&](Index i) {
          A total = 0;
          for (Index b = 0; b < blocks; ++b) total += partial_BD(b, first + i);
          sum_D(first + i) += static_cast<T>(total);
        });
      });
}

/// \brief Asserts the extents of an argument of a kernel.
template <class View, class... Extents>
void check_extents(const char* kernel, const char* name, const View& view,
                   Extents... extents) {
  static_assert(sizeof...(Extents) == View::rank());
  const Index expected[] = {static_cast<Index>(extents)...};
  for (std::size_t i = 0; i < View::rank(); ++i) {
    PLEAT_ASSERT(static_cast<Index>(view.extent(i)) == expected[i],
                 "{}: extent {} of {} is {}, expected {}", kernel, i, name,
                 view.extent(i), expected[i]);
  }
}

}  // namespace pleat::kernels::detail
