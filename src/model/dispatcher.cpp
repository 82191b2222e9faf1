// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/dispatcher.hpp"

#include <algorithm>

#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "rank_dispatchers.hpp"

namespace pleat::model {
namespace detail {

void require_same_tokens(const std::vector<std::int64_t>& tokens_P) {
  const auto [least, most] = std::minmax_element(tokens_P.begin(), tokens_P.end());
  PLEAT_ASSERT(*least == *most, "ranks that exchange tokens have {} to {} of them",
               *least, *most);
}

std::vector<std::int64_t> equal_offsets(std::int64_t groups, std::int64_t rows) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(groups) + 1);
  for (std::size_t g = 0; g < offsets.size(); ++g) {
    offsets[g] = static_cast<std::int64_t>(g) * rows;
  }
  return offsets;
}

DeviceView<std::int64_t, 1> device_copy(const std::vector<std::int64_t>& values,
                                        const char* label) {
  const DeviceView<std::int64_t, 1> copy(std::string(label), values.size());
  copy_tensor(copy, HostView<const std::int64_t, 1>(values.data(), values.size()));
  return copy;
}

}  // namespace detail

template <class T>
std::unique_ptr<const Dispatcher<T>> make_dispatcher(plan::DispatcherKind kind,
                                                     std::int64_t experts,
                                                     const comm::Grid& grid,
                                                     std::int64_t padded_rows) {
  const bool alone = grid.group(comm::GroupName::kDispatch).size() == 1;
  if (alone && padded_rows == 0) return make_local_dispatcher<T>(experts);
  if (alone || kind == plan::DispatcherKind::kAllToAll) {
    return make_all_to_all_dispatcher<T>(experts, grid, padded_rows);
  }
  return make_all_gather_dispatcher<T>(experts, grid, padded_rows);
}

template std::unique_ptr<const Dispatcher<float>> make_dispatcher<float>(
    plan::DispatcherKind, std::int64_t, const comm::Grid&, std::int64_t);
template std::unique_ptr<const Dispatcher<double>> make_dispatcher<double>(
    plan::DispatcherKind, std::int64_t, const comm::Grid&, std::int64_t);
template std::unique_ptr<const Dispatcher<Bf16>> make_dispatcher<Bf16>(
    plan::DispatcherKind, std::int64_t, const comm::Grid&, std::int64_t);

}  // namespace pleat::model
