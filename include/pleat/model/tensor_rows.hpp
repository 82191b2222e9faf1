// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Tensor parallelism with sequence parallelism: between the layers each tensor rank
/// keeps T of the U = T tp rows of its context rank; a column-parallel product reads all of
/// them, a row-parallel product gives a partial sum of all of them (Korthikanti et al., arXiv
/// 2205.05198). Without tensor parallelism nothing is copied.
///
/// Legend: T rows of this rank, U rows of its tensor group, D columns.

#include "pleat/model/context.hpp"

namespace pleat::model {

/// \brief All elements of a contiguous view, as the collectives take them.
template <class View>
auto flat(const View& x) {
  return DeviceView<typename View::value_type, 1>(x.data(), x.size());
}

inline bool is_tensor_parallel(const Context& context) {
  return context.grid.degree(comm::Axis::kTensor) > 1;
}

/// \brief x_UD: the rows of all tensor ranks in rank order; x_TD itself where there is one.
/// Collective over tp.
template <class T>
DeviceView<const T, 2> gather_rows(const Context& context, const DeviceView<const T, 2>& x_TD,
                                   Arena& arena);

/// \brief Where a row-parallel product puts its result: y_TD = beta y_TD + this rank's rows of
/// the sum over the tensor ranks.
///
///     RowSum<T> sum(context, beta, y_TD);
///     gemm(..., sum.beta(), sum.target_UD());
///     sum.finish();
///
/// Memory is taken from the scratch arena and given back at the end of the object's life.
template <class T>
class RowSum {
 public:
  using A = Accumulator<T>;

  RowSum(const Context& context, A beta, const DeviceView<T, 2>& y_TD);
  /// \brief y_TD itself, or a buffer of U rows.
  const DeviceView<T, 2>& target_UD() const { return target_UD_; }
  /// \brief What the product must scale its target by.
  A beta() const { return parallel_ ? A(0) : beta_; }
  /// \brief Collective over tp.
  void finish() const;

 private:
  const Context& context_;
  ArenaScope scope_;
  bool parallel_;
  A beta_;
  DeviceView<T, 2> y_TD_;
  DeviceView<T, 2> target_UD_;
};

}  // namespace pleat::model
