// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Brings tokens to their experts and the results back.
///
///     x_TD  --dispatch-->  x_RD (sorted by expert)  --experts-->  y_RD  --combine-->  y_TD
///
/// combine() is the adjoint of dispatch(): the backward pass dispatches the gradient of y_TD
/// and combines the gradient of x_RD, so two operations serve both directions.
///
/// Legend: T tokens, K experts per token, E experts, R rows at the experts, D hidden.

#include <cstdint>
#include <memory>
#include <vector>

#include "pleat/base/arena.hpp"
#include "pleat/kernels/gemm.hpp"
#include "pleat/kernels/permute.hpp"

namespace pleat::model {

/// \brief How the tokens of one layer and micro-batch travel; made once, used by every
/// exchange of that layer, forward and backward.
struct DispatchRecord {
  kernels::Permutation permutation;
  std::vector<std::int64_t> host_offsets;  ///< [E + 1]
  std::int64_t rows = 0;                   ///< R

  kernels::GroupOffsets offsets() const { return {host_offsets, permutation.offsets_E1}; }
};

template <class T>
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;

  /// \brief Fills the record from the router's choices (index -1: goes nowhere). The one place
  /// where the host waits for the device, for the sizes. Its views are taken from `saved`.
  virtual void plan(const ExecSpace& exec, const DeviceView<const std::int32_t, 2>& index_TK,
                    Arena& saved, Arena& scratch, DispatchRecord& record) const = 0;

  /// \brief x_RD from x_TD.
  virtual void dispatch(const ExecSpace& exec, const DispatchRecord& record,
                        const DeviceView<const T, 2>& x_TD,
                        const DeviceView<T, 2>& x_RD) const = 0;

  /// \brief y_TD = sum over the choices of each token of its rows of y_RD.
  virtual void combine(const ExecSpace& exec, const DispatchRecord& record,
                       const DeviceView<const T, 2>& y_RD,
                       const DeviceView<T, 2>& y_TD) const = 0;

  /// \brief Routing weights travel like tokens ...
  virtual void dispatch_weights(const ExecSpace& exec, const DispatchRecord& record,
                                const DeviceView<const Accumulator<T>, 2>& weight_TK,
                                const DeviceView<Accumulator<T>, 1>& weight_R) const = 0;
  /// \brief ... and their gradients come back.
  virtual void return_weights(const ExecSpace& exec, const DispatchRecord& record,
                              const DeviceView<const Accumulator<T>, 1>& dweight_R,
                              const DeviceView<Accumulator<T>, 2>& dweight_TK) const = 0;
};

/// \brief All experts on this rank: dispatching is a permutation. The reference that the
/// dispatchers of several ranks must equal.
template <class T>
std::unique_ptr<const Dispatcher<T>> make_local_dispatcher(std::int64_t experts);

}  // namespace pleat::model
