// SPDX-License-Identifier: Apache-2.0
#include "row_exchange.hpp"

#include <numeric>

#include "pleat/base/error.hpp"

namespace pleat::model {

namespace {

using Counts = std::vector<std::int64_t>;

/// Elements of the rows.
Counts scaled(const Counts& rows, std::int64_t columns) {
  Counts elements(rows);
  for (auto& count : elements) count *= columns;
  return elements;
}

std::int64_t sum(const Counts& rows, std::int64_t members) {
  return std::accumulate(rows.begin(), rows.begin() + members, std::int64_t{0});
}

template <class U>
DeviceView<U, 2> rows_of(const DeviceView<U, 2>& x_RD, std::int64_t first,
                         std::int64_t rows) {
  const auto columns = x_RD.extent(1);
  return DeviceView<U, 2>(x_RD.data() + static_cast<std::size_t>(first) * columns,
                          static_cast<std::size_t>(rows), columns);
}

}  // namespace

RowExchange::RowExchange(std::int64_t experts, const comm::Grid& grid)
    : expert_group_(grid.group(comm::GroupName::kExpert)),
      shard_group_(grid.group(comm::GroupName::kExpertTensor)),
      expert_ranks_(expert_group_.size()),
      shards_(shard_group_.size()),
      expert_rank_(expert_group_.rank()),
      shard_(shard_group_.rank()),
      experts_(experts),
      local_(experts / expert_ranks_) {
  PLEAT_ASSERT(local_ * expert_ranks_ == experts, "{} experts on {} ranks", experts,
               expert_ranks_);
}

void RowExchange::find_routes(std::span<const std::int64_t> counts_PE,
                              DispatchRecord& record) const {
  // Rows of a source for the experts that are `other`s on the expert axis, or for one of
  // ours.
  const auto count = [&](std::int64_t source, std::int64_t expert) {
    return counts_PE[static_cast<std::size_t>(source * experts_ + expert)];
  };
  const auto rows_for = [&](std::int64_t source, std::int64_t other) {
    std::int64_t rows = 0;
    for (std::int64_t l = 0; l < local_; ++l) rows += count(source, other * local_ + l);
    return rows;
  };
  const std::int64_t first = expert_rank_ * local_;
  const std::int64_t self = expert_rank_ * shards_ + shard_;
  for (Counts* list : {&record.sent_rows, &record.received_rows, &record.host_offsets,
                       &record.host_segments, &record.gathered_rows}) {
    list->clear();
  }
  for (std::int64_t q = 0; q < expert_ranks_; ++q) {
    record.sent_rows.push_back(rows_for(self, q));
    record.received_rows.push_back(rows_for(q * shards_ + shard_, expert_rank_));
  }
  // to_PL: where the rows of each source begin among those of each expert.
  to_PL_.resize(static_cast<std::size_t>(segments()));
  std::int64_t row = 0;
  for (std::int64_t l = 0; l < local_; ++l) {
    record.host_offsets.push_back(row);
    for (std::int64_t p = 0; p < ranks(); ++p) {
      to_PL_[static_cast<std::size_t>(p * local_ + l)] = row;
      row += count(p, first + l);
    }
  }
  record.host_offsets.push_back(row);
  record.rows = row;
  std::int64_t from = 0;
  for (std::int64_t f = 0; f < shards_; ++f) {
    const std::int64_t before = from;
    for (std::int64_t q = 0; q < expert_ranks_; ++q) {
      for (std::int64_t l = 0; l < local_; ++l) {
        const std::int64_t p = q * shards_ + f;
        const std::int64_t rows = count(p, first + l);
        record.host_segments.insert(
            record.host_segments.end(),
            {from, to_PL_[static_cast<std::size_t>(p * local_ + l)], rows});
        from += rows;
      }
    }
    record.gathered_rows.push_back(from - before);
  }
}

template <class U>
void RowExchange::to_experts(const ExecSpace& exec, const DispatchRecord& record,
                             const std::function<void(const DeviceView<U, 2>&)>& fill,
                             Arena& scratch, const DeviceView<U, 2>& x_RD,
                             const Meanwhile& meanwhile) const {
  const ArenaScope scope(scratch);
  const std::int64_t columns = x_RD.extent(1);
  const auto arrived_RD = arrives_sorted() ? x_RD : scratch.take<U>(record.rows, columns);
  // What this rank receives lies at its place among what the shards gather.
  const auto own_MD = rows_of<U>(arrived_RD, sum(record.gathered_rows, shard_),
                                 sum(record.received_rows, expert_ranks_));
  if (expert_ranks_ == 1) {
    fill(own_MD);
    detail::run(meanwhile);
  } else {
    const auto sent_SD = scratch.take<U>(sum(record.sent_rows, expert_ranks_), columns);
    fill(sent_SD);
    const Counts sent = scaled(record.sent_rows, columns);
    const Counts received = scaled(record.received_rows, columns);
    comm::Pending travel =
        expert_group_.start_all_to_all_v(flat(sent_SD), sent, flat(own_MD), received);
    detail::run(meanwhile);
    travel.wait();
  }
  if (shards_ > 1) {
    shard_group_.all_gather_v(flat(own_MD), flat(arrived_RD),
                              scaled(record.gathered_rows, columns));
  }
  if (!arrives_sorted()) {
    kernels::scatter_rows<U>(exec, record.sorted_R, arrived_RD, x_RD);
  }
}

template <class U>
void RowExchange::from_experts(
    const ExecSpace& exec, const DispatchRecord& record,
    const DeviceView<const U, 2>& y_RD, Arena& scratch,
    const std::function<void(const DeviceView<const U, 2>&)>& use,
    const Meanwhile& meanwhile) const {
  const ArenaScope scope(scratch);
  const std::int64_t columns = y_RD.extent(1);
  DeviceView<const U, 2> rows_D = y_RD;
  if (!arrives_sorted()) {
    const auto arrived_RD = scratch.take<U>(record.rows, columns);
    kernels::gather_rows<U>(exec, record.sorted_R, y_RD, arrived_RD);
    rows_D = arrived_RD;
  }
  if (shards_ > 1) {
    const auto own_MD =
        scratch.take<U>(sum(record.received_rows, expert_ranks_), columns);
    shard_group_.reduce_scatter_v(flat(rows_D), flat(own_MD),
                                  scaled(record.gathered_rows, columns));
    rows_D = own_MD;
  }
  if (expert_ranks_ == 1) {
    use(rows_D);
    detail::run(meanwhile);
    return;
  }
  const auto returned_SD = scratch.take<U>(sum(record.sent_rows, expert_ranks_), columns);
  const Counts sent = scaled(record.sent_rows, columns);
  const Counts received = scaled(record.received_rows, columns);
  comm::Pending travel =
      expert_group_.start_all_to_all_v(flat(rows_D), received, flat(returned_SD), sent);
  detail::run(meanwhile);
  travel.wait();
  use(returned_SD);
}

#define PLEAT_INSTANTIATE(U)                                                          \
  template void RowExchange::to_experts<U>(                                           \
      const ExecSpace&, const DispatchRecord&,                                        \
      const std::function<void(const DeviceView<U, 2>&)>&, Arena&,                    \
      const DeviceView<U, 2>&, const Meanwhile&) const;                               \
  template void RowExchange::from_experts<U>(                                         \
      const ExecSpace&, const DispatchRecord&, const DeviceView<const U, 2>&, Arena&, \
      const std::function<void(const DeviceView<const U, 2>&)>&, const Meanwhile&)    \
      const;
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::model
