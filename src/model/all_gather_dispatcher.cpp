// SPDX-License-Identifier: Apache-2.0
//
// Every token goes to every rank of ep*etp, once, however many of its experts live there;
// a rank picks the rows of its experts and returns one partial sum for each token.
//
// Legend: T tokens of this rank, G tokens of all P ranks of ep*etp (P T), K experts per
// token, L experts of this rank, R rows at its experts, D hidden.

#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "rank_dispatchers.hpp"

namespace pleat::model {
namespace {

template <class T>
class AllGatherDispatcher : public Dispatcher<T> {
 public:
  using A = Accumulator<T>;

  AllGatherDispatcher(std::int64_t experts, const comm::Grid& grid,
                      std::int64_t padded_rows)
      : group_(grid.group(comm::GroupName::kDispatch)),
        ranks_(group_.size()),
        experts_(experts / grid.degree(comm::Axis::kExpert)),
        first_(grid.coordinate(comm::Axis::kExpert) * experts_),
        padded_rows_(padded_rows) {
    PLEAT_ASSERT(experts_ * grid.degree(comm::Axis::kExpert) == experts,
                 "{} experts on {} ranks", experts, grid.degree(comm::Axis::kExpert));
    if (padded_rows_ == 0) return;
    padded_offsets_ = detail::equal_offsets(experts_, ranks_ * padded_rows_);
    padded_offsets_L1_ = detail::device_copy(padded_offsets_, "padded_offsets_L1");
  }

  void plan(const ExecSpace& exec, const DeviceView<const std::int32_t, 2>& index_TK,
            Arena& saved, Arena& scratch, DispatchRecord& record) const override {
    const auto tokens = static_cast<std::int64_t>(index_TK.extent(0));
    const auto top_k = index_TK.extent(1);
    const bool padded = padded_rows_ > 0;
    // Where experts are padded, each source counts as an expert of its own: it has its
    // own rows.
    const auto groups = padded ? experts_ * ranks_ : experts_;
    record.permutation = {saved.take<std::int64_t>(groups + 1),
                          saved.take<std::int64_t>(ranks_ * tokens, top_k)};
    const ArenaScope scope(scratch);
    const auto index_GK = scratch.take<std::int32_t>(ranks_ * tokens, top_k);
    if (!padded) compare_tokens(tokens);
    group_.all_gather(flat(index_TK), flat(index_GK));
    kernels::select_experts(exec, index_GK, first_, experts_, padded ? tokens : 0);
    kernels::make_permutation(exec, index_GK, groups, scratch, record.permutation);
    if (padded) {
      kernels::pad_permutation(exec, index_GK, padded_rows_, record.permutation);
      record.host_offsets = padded_offsets_;
      record.offsets_L1 = padded_offsets_L1_;
    } else {
      read_offsets(exec, record);
    }
    record.rows = record.host_offsets.back();
  }

  void dispatch(const ExecSpace& exec, const DispatchRecord& record,
                const DeviceView<const T, 2>& x_TD, Arena& scratch,
                const DeviceView<T, 2>& x_RD, const Meanwhile& meanwhile) const override {
    const ArenaScope scope(scratch);
    const auto x_GD = scratch.take<T>(ranks_ * x_TD.extent(0), x_TD.extent(1));
    comm::Pending gather = group_.start_all_gather(flat(x_TD), flat(x_GD));
    detail::run(meanwhile);
    gather.wait();
    if (padded_rows_ > 0) fill_tensor(exec, x_RD, T(0));
    kernels::permute_rows<T>(exec, record.permutation, x_GD, x_RD);
  }

  void combine(const ExecSpace& exec, const DispatchRecord& record,
               const DeviceView<const T, 2>& y_RD, Arena& scratch,
               const DeviceView<T, 2>& y_TD, const Meanwhile& meanwhile) const override {
    const ArenaScope scope(scratch);
    const auto y_GD = scratch.take<T>(ranks_ * y_TD.extent(0), y_TD.extent(1));
    kernels::unpermute_sum<T>(exec, record.permutation, y_RD, y_GD);
    comm::Pending scatter = group_.start_reduce_scatter(flat(y_GD), flat(y_TD));
    detail::run(meanwhile);
    scatter.wait();
  }

  void dispatch_weights(const ExecSpace& exec, const DispatchRecord& record,
                        const DeviceView<const A, 2>& weight_TK, Arena& scratch,
                        const DeviceView<A, 1>& weight_R) const override {
    const ArenaScope scope(scratch);
    const auto weight_GK =
        scratch.take<A>(ranks_ * weight_TK.extent(0), weight_TK.extent(1));
    group_.all_gather(flat(weight_TK), flat(weight_GK));
    if (padded_rows_ > 0) fill_tensor(exec, weight_R, A(0));
    kernels::permute_values<A>(exec, record.permutation, weight_GK, weight_R);
  }

  void return_weights(const ExecSpace& exec, const DispatchRecord& record,
                      const DeviceView<const A, 1>& dweight_R, Arena& scratch,
                      const DeviceView<A, 2>& dweight_TK) const override {
    const ArenaScope scope(scratch);
    const auto dweight_GK =
        scratch.take<A>(ranks_ * dweight_TK.extent(0), dweight_TK.extent(1));
    kernels::unpermute_values<A>(exec, record.permutation, dweight_R, dweight_GK);
    group_.reduce_scatter(flat(dweight_GK), flat(dweight_TK));
  }

 private:
  /// A gather of unequal parts would hang or fail with no word on the cause.
  void compare_tokens(std::int64_t tokens) const {
    std::vector<std::int64_t> tokens_P(static_cast<std::size_t>(ranks_));
    group_.all_gather(HostView<std::int64_t, 1>(&tokens, 1),
                      HostView<std::int64_t, 1>(tokens_P.data(), tokens_P.size()));
    detail::require_same_tokens(tokens_P);
  }

  static void read_offsets(const ExecSpace& exec, DispatchRecord& record) {
    record.offsets_L1 = record.permutation.offsets_E1;
    record.host_offsets.resize(record.offsets_L1.extent(0));
    const HostView<std::int64_t, 1> host(record.host_offsets.data(),
                                         record.host_offsets.size());
    copy_tensor(exec, host, record.offsets_L1);
    exec.fence("pleat::model::AllGatherDispatcher::plan");
  }

  comm::Communicator& group_;
  std::int64_t ranks_;    // P
  std::int64_t experts_;  // L
  std::int64_t first_;    // the number of this rank's first expert
  std::int64_t padded_rows_;
  std::vector<std::int64_t> padded_offsets_;
  DeviceView<std::int64_t, 1> padded_offsets_L1_;
};

}  // namespace

template <class T>
std::unique_ptr<const Dispatcher<T>> make_all_gather_dispatcher(
    std::int64_t experts, const comm::Grid& grid, std::int64_t padded_rows) {
  return std::make_unique<const AllGatherDispatcher<T>>(experts, grid, padded_rows);
}

template std::unique_ptr<const Dispatcher<float>> make_all_gather_dispatcher<float>(
    std::int64_t, const comm::Grid&, std::int64_t);
template std::unique_ptr<const Dispatcher<double>> make_all_gather_dispatcher<double>(
    std::int64_t, const comm::Grid&, std::int64_t);
template std::unique_ptr<const Dispatcher<Bf16>> make_all_gather_dispatcher<Bf16>(
    std::int64_t, const comm::Grid&, std::int64_t);

}  // namespace pleat::model
