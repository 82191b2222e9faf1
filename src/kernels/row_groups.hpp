// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The groups of consecutive rows that lie on this rank, whole or in part.

#include <algorithm>

#include "pleat/kernels/router.hpp"
#include "rows.hpp"

namespace pleat::kernels::detail {

/// \brief Groups first .. first + count - 1 have rows here, which is at least one each.
struct HeldGroups {
  Index first = 0;
  Index count = 0;
  Index group_rows = 1;  ///< of a whole group
  Index first_row = 0;   ///< of this rank, in group `first`
  Index tokens = 0;      ///< of this rank

  /// \brief Which of the groups that lie here (0 .. count - 1) row t belongs to.
  KOKKOS_INLINE_FUNCTION Index held_group(Index t) const {
    return (first_row + t) / group_rows;
  }
  /// \brief The rows of that group that lie here: begin .. end - 1.
  KOKKOS_INLINE_FUNCTION Index begin(Index held) const {
    return Kokkos::max(held * group_rows - first_row, Index{0});
  }
  KOKKOS_INLINE_FUNCTION Index end(Index held) const {
    return Kokkos::min((held + 1) * group_rows - first_row, tokens);
  }
  /// \brief Most rows of a group that may lie here.
  Index largest() const { return std::min(group_rows, tokens); }
};

inline HeldGroups held_groups(const char* label, const RowGroups& rows, Index tokens) {
  PLEAT_ASSERT(rows.groups > 0 && rows.first_row >= 0 &&
                   rows.first_row + tokens <= rows.groups * rows.rows,
               "{}: rows {} to {} of {} groups of {}", label, rows.first_row,
               rows.first_row + tokens, rows.groups, rows.rows);
  if (tokens == 0) return {};
  const Index first_row = rows.first_row % rows.rows;
  return {rows.first_row / rows.rows, (first_row + tokens - 1) / rows.rows + 1, rows.rows,
          first_row, tokens};
}

}  // namespace pleat::kernels::detail
