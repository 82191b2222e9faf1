// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/tensor_rows.hpp"

#include "pleat/kernels/elementwise.hpp"

namespace pleat::model {
namespace {

comm::Communicator& tensor_group(const Context& context) {
  return context.grid.group(comm::GroupName::kTensor);
}

}  // namespace

template <class T>
DeviceView<const T, 2> gather_rows(const Context& context, const DeviceView<const T, 2>& x_TD,
                                   Arena& arena) {
  if (!is_tensor_parallel(context)) return x_TD;
  const auto ranks = static_cast<std::size_t>(context.grid.degree(comm::Axis::kTensor));
  const auto x_UD = arena.take<T>(ranks * x_TD.extent(0), x_TD.extent(1));
  tensor_group(context).all_gather(flat(x_TD), flat(x_UD));
  return x_UD;
}

template <class T>
RowSum<T>::RowSum(const Context& context, A beta, const DeviceView<T, 2>& y_TD)
    : context_(context),
      scope_(context.scratch),
      parallel_(is_tensor_parallel(context)),
      beta_(beta),
      y_TD_(y_TD),
      target_UD_(y_TD) {
  if (!parallel_) return;
  const auto ranks = static_cast<std::size_t>(context.grid.degree(comm::Axis::kTensor));
  target_UD_ = context.scratch.take<T>(ranks * y_TD.extent(0), y_TD.extent(1));
}

template <class T>
void RowSum<T>::finish() const {
  if (!parallel_) return;
  if (beta_ == A(0)) {
    tensor_group(context_).reduce_scatter(flat(target_UD_), flat(y_TD_));
    return;
  }
  PLEAT_ASSERT(beta_ == A(1), "a row sum replaces or adds");
  const auto sum_TD = context_.scratch.take<T>(y_TD_.extent(0), y_TD_.extent(1));
  tensor_group(context_).reduce_scatter(flat(target_UD_), flat(sum_TD));
  kernels::add_in_place<T>(context_.exec, sum_TD, y_TD_);
}

#define PLEAT_INSTANTIATE(T)                                                             \
  template DeviceView<const T, 2> gather_rows<T>(const Context&,                         \
                                                 const DeviceView<const T, 2>&, Arena&); \
  template class RowSum<T>;
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::model
