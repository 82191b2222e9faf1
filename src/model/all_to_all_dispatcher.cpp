// SPDX-License-Identifier: Apache-2.0
//
// A row goes to the rank of its expert alone. Sizes come from the counts of all ranks, or
// are fixed where rows are padded.
//
// Legend: T tokens of this rank, K experts per token, P ranks of ep*etp, E experts, L
// experts of this rank, S rows that it sends, R rows at its experts, D hidden.

#include <utility>

#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "row_exchange.hpp"

namespace pleat::model {
namespace {

template <class T>
class AllToAllDispatcher : public Dispatcher<T> {
 public:
  using A = Accumulator<T>;

  AllToAllDispatcher(std::int64_t experts, const comm::Grid& grid,
                     std::int64_t padded_rows)
      : group_(grid.group(comm::GroupName::kDispatch)),
        exchange_(experts, grid),
        experts_(experts),
        padded_rows_(padded_rows) {
    if (padded_rows_ > 0) make_padded_record();
  }

  void plan(const ExecSpace& exec, const DeviceView<const std::int32_t, 2>& index_TK,
            Arena& saved, Arena& scratch, DispatchRecord& record) const override {
    const auto tokens = static_cast<std::int64_t>(index_TK.extent(0));
    const kernels::Permutation permutation{
        saved.take<std::int64_t>(experts_ + 1),
        saved.take<std::int64_t>(tokens, index_TK.extent(1))};
    kernels::make_permutation(exec, index_TK, experts_, scratch, permutation);
    if (padded_rows_ > 0) {
      kernels::pad_permutation(exec, index_TK, padded_rows_, permutation);
      record = padded_record_;
    } else {
      exchange_counts(exec, tokens, permutation.offsets_E1);
      exchange_.find_routes(counts_.all_PE, record);
      const auto offsets_L1 = saved.take<std::int64_t>(exchange_.local_experts() + 1);
      const auto sorted_R = saved.take<std::int64_t>(record.rows);
      fill_record(exec, scratch, offsets_L1, sorted_R, record);
    }
    record.permutation = permutation;
  }

  void dispatch(const ExecSpace& exec, const DispatchRecord& record,
                const DeviceView<const T, 2>& x_TD, Arena& scratch,
                const DeviceView<T, 2>& x_RD, const Meanwhile& meanwhile) const override {
    const auto fill = [&](const DeviceView<T, 2>& x_SD) {
      if (padded_rows_ > 0) fill_tensor(exec, x_SD, T(0));
      kernels::permute_rows<T>(exec, record.permutation, x_TD, x_SD);
    };
    exchange_.to_experts<T>(exec, record, fill, scratch, x_RD, meanwhile);
  }

  void combine(const ExecSpace& exec, const DispatchRecord& record,
               const DeviceView<const T, 2>& y_RD, Arena& scratch,
               const DeviceView<T, 2>& y_TD, const Meanwhile& meanwhile) const override {
    const auto use = [&](const DeviceView<const T, 2>& y_SD) {
      kernels::unpermute_sum<T>(exec, record.permutation, y_SD, y_TD);
    };
    exchange_.from_experts<T>(exec, record, y_RD, scratch, use, meanwhile);
  }

  void dispatch_weights(const ExecSpace& exec, const DispatchRecord& record,
                        const DeviceView<const A, 2>& weight_TK, Arena& scratch,
                        const DeviceView<A, 1>& weight_R) const override {
    const auto fill = [&](const DeviceView<A, 2>& weight_S1) {
      const auto weight_S = flat(weight_S1);
      if (padded_rows_ > 0) fill_tensor(exec, weight_S, A(0));
      kernels::permute_values<A>(exec, record.permutation, weight_TK, weight_S);
    };
    const DeviceView<A, 2> weight_R1(weight_R.data(), weight_R.extent(0), 1);
    exchange_.to_experts<A>(exec, record, fill, scratch, weight_R1, {});
  }

  void return_weights(const ExecSpace& exec, const DispatchRecord& record,
                      const DeviceView<const A, 1>& dweight_R, Arena& scratch,
                      const DeviceView<A, 2>& dweight_TK) const override {
    const auto use = [&](const DeviceView<const A, 2>& dweight_S1) {
      kernels::unpermute_values<A>(exec, record.permutation, flat(dweight_S1),
                                   dweight_TK);
    };
    const DeviceView<const A, 2> dweight_R1(dweight_R.data(), dweight_R.extent(0), 1);
    exchange_.from_experts<A>(exec, record, dweight_R1, scratch, use, {});
  }

 private:
  /// Sizes that hold for every micro-batch; only the permutation is missing.
  void make_padded_record() {
    exchange_.find_routes(
        std::vector<std::int64_t>(static_cast<std::size_t>(exchange_.ranks() * experts_),
                                  padded_rows_),
        padded_record_);
    const DeviceView<std::int64_t, 1> offsets_L1("padded_offsets_L1",
                                                 padded_record_.host_offsets.size());
    const DeviceView<std::int64_t, 1> sorted_R("padded_sorted_R", padded_record_.rows);
    Arena scratch("padded routes");
    const ExecSpace exec;
    fill_record(exec, scratch, offsets_L1, sorted_R, padded_record_);
    exec.fence("pleat::model::AllToAllDispatcher");
    padded_record_.host_segments.clear();
  }

  /// all_PE: how many rows each rank has for each expert. One message of E + 1
  /// numbers, the last of which is the number of tokens.
  void exchange_counts(const ExecSpace& exec, std::int64_t tokens,
                       const DeviceView<std::int64_t, 1>& offsets_E1) const {
    const auto ranks = static_cast<std::size_t>(exchange_.ranks());
    const auto experts = static_cast<std::size_t>(experts_);
    auto& [own_E1, all_PE1, all_PE, tokens_P] = counts_;
    own_E1.resize(experts + 1);
    all_PE1.resize(ranks * own_E1.size());
    const HostView<std::int64_t, 1> own(own_E1.data(), own_E1.size());
    copy_tensor(exec, own, offsets_E1);
    exec.fence("pleat::model::AllToAllDispatcher::plan");
    for (std::size_t e = 0; e < experts; ++e) own_E1[e] = own_E1[e + 1] - own_E1[e];
    own_E1[experts] = tokens;
    group_.all_gather(own, HostView<std::int64_t, 1>(all_PE1.data(), all_PE1.size()));
    all_PE.clear();
    tokens_P.clear();
    for (std::size_t p = 0; p < ranks; ++p) {
      const auto first = all_PE1.begin() + static_cast<std::ptrdiff_t>(p * (experts + 1));
      const auto last = first + static_cast<std::ptrdiff_t>(experts);
      all_PE.insert(all_PE.end(), first, last);
      tokens_P.push_back(*last);
    }
    detail::require_same_tokens(tokens_P);
  }

  /// The record keeps what the device copies from, so that the host need not wait.
  void fill_record(const ExecSpace& exec, Arena& scratch,
                   const DeviceView<std::int64_t, 1>& offsets_L1,
                   const DeviceView<std::int64_t, 1>& sorted_R,
                   DispatchRecord& record) const {
    record.offsets_L1 = offsets_L1;
    record.sorted_R = sorted_R;
    const ArenaScope scope(scratch);
    const auto segments_S3 = scratch.take<std::int64_t>(exchange_.segments(), 3);
    using Host = HostView<const std::int64_t, 1>;
    copy_tensor(exec, flat(segments_S3),
                      Host(record.host_segments.data(), record.host_segments.size()));
    copy_tensor(exec, offsets_L1,
                      Host(record.host_offsets.data(), record.host_offsets.size()));
    kernels::place_segments(exec, segments_S3, sorted_R);
  }

  /// Lists of exchange_counts(), whose memory serves every micro-batch.
  struct Counts {
    std::vector<std::int64_t> own_E1, all_PE1, all_PE, tokens_P;
  };

  comm::Communicator& group_;
  RowExchange exchange_;
  std::int64_t experts_;
  std::int64_t padded_rows_;
  DispatchRecord padded_record_;
  mutable Counts counts_;
};

}  // namespace

template <class T>
std::unique_ptr<const Dispatcher<T>> make_all_to_all_dispatcher(
    std::int64_t experts, const comm::Grid& grid, std::int64_t padded_rows) {
  return std::make_unique<const AllToAllDispatcher<T>>(experts, grid, padded_rows);
}

template std::unique_ptr<const Dispatcher<float>> make_all_to_all_dispatcher<float>(
    std::int64_t, const comm::Grid&, std::int64_t);
template std::unique_ptr<const Dispatcher<double>> make_all_to_all_dispatcher<double>(
    std::int64_t, const comm::Grid&, std::int64_t);
template std::unique_ptr<const Dispatcher<Bf16>> make_all_to_all_dispatcher<Bf16>(
    std::int64_t, const comm::Grid&, std::int64_t);

}  // namespace pleat::model
