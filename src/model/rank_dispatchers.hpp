// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The dispatchers over several ranks and what they share.
///
/// Legend: T tokens of this rank, R rows at its experts, D hidden, P ranks of ep*etp.

#include <memory>

#include "pleat/model/dispatcher.hpp"
#include "pleat/model/tensor_rows.hpp"

namespace pleat::model {

/// \brief Also for one rank, where it pads.
template <class T>
std::unique_ptr<const Dispatcher<T>> make_all_to_all_dispatcher(std::int64_t experts,
                                                                const comm::Grid& grid,
                                                                std::int64_t padded_rows);

/// \brief For at least two ranks.
template <class T>
std::unique_ptr<const Dispatcher<T>> make_all_gather_dispatcher(std::int64_t experts,
                                                                const comm::Grid& grid,
                                                                std::int64_t padded_rows);

namespace detail {

inline void run(const Meanwhile& meanwhile) {
  if (meanwhile) meanwhile();
}

/// \brief Every rank of the group has as many tokens.
void require_same_tokens(const std::vector<std::int64_t>& tokens_P);

/// \brief [0, rows, 2 rows, ...]: the offsets of groups of one size.
std::vector<std::int64_t> equal_offsets(std::int64_t groups, std::int64_t rows);

/// \brief A device copy that owns its memory, complete on return.
DeviceView<std::int64_t, 1> device_copy(const std::vector<std::int64_t>& values,
                                        const char* label);

}  // namespace detail
}  // namespace pleat::model
