// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/dispatcher.hpp"

#include "pleat/base/copy.hpp"

namespace pleat::model {
namespace {

template <class T>
class LocalDispatcher : public Dispatcher<T> {
 public:
  explicit LocalDispatcher(std::int64_t experts) : experts_(experts) {}

  void plan(const ExecSpace& exec, const DeviceView<const std::int32_t, 2>& index_TK,
            Arena& saved, Arena& scratch, DispatchRecord& record) const override {
    const auto tokens = index_TK.extent(0);
    const auto top_k = index_TK.extent(1);
    record.permutation = {saved.take<std::int64_t>(experts_ + 1),
                          saved.take<std::int64_t>(tokens, top_k)};
    kernels::make_permutation(exec, index_TK, experts_, scratch, record.permutation);
    record.host_offsets.resize(static_cast<std::size_t>(experts_ + 1));
    const HostView<std::int64_t, 1> host(record.host_offsets.data(),
                                         record.host_offsets.size());
    copy_tensor(exec, host, record.permutation.offsets_E1);
    exec.fence("pleat::model::LocalDispatcher::plan");
    record.offsets_L1 = record.permutation.offsets_E1;
    record.rows = record.host_offsets.back();
  }

  bool travels() const override { return false; }

  void dispatch(const ExecSpace& exec, const DispatchRecord& record,
                const DeviceView<const T, 2>& x_TD, Arena&, const DeviceView<T, 2>& x_RD,
                const Meanwhile& meanwhile) const override {
    kernels::permute_rows<T>(exec, record.permutation, x_TD, x_RD);
    if (meanwhile) meanwhile();
  }

  void combine(const ExecSpace& exec, const DispatchRecord& record,
               const DeviceView<const T, 2>& y_RD, Arena&, const DeviceView<T, 2>& y_TD,
               const Meanwhile& meanwhile) const override {
    kernels::unpermute_sum<T>(exec, record.permutation, y_RD, y_TD);
    if (meanwhile) meanwhile();
  }

  void dispatch_weights(const ExecSpace& exec, const DispatchRecord& record,
                        const DeviceView<const Accumulator<T>, 2>& weight_TK, Arena&,
                        const DeviceView<Accumulator<T>, 1>& weight_R) const override {
    kernels::permute_values<Accumulator<T>>(exec, record.permutation, weight_TK,
                                            weight_R);
  }

  void return_weights(const ExecSpace& exec, const DispatchRecord& record,
                      const DeviceView<const Accumulator<T>, 1>& dweight_R, Arena&,
                      const DeviceView<Accumulator<T>, 2>& dweight_TK) const override {
    kernels::unpermute_values<Accumulator<T>>(exec, record.permutation, dweight_R,
                                              dweight_TK);
  }

 private:
  std::int64_t experts_;
};

}  // namespace

template <class T>
std::unique_ptr<const Dispatcher<T>> make_local_dispatcher(std::int64_t experts) {
  return std::make_unique<const LocalDispatcher<T>>(experts);
}

template std::unique_ptr<const Dispatcher<float>> make_local_dispatcher<float>(
    std::int64_t);
template std::unique_ptr<const Dispatcher<double>> make_local_dispatcher<double>(
    std::int64_t);
template std::unique_ptr<const Dispatcher<Bf16>> make_local_dispatcher<Bf16>(
    std::int64_t);

}  // namespace pleat::model
