// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Brings tokens to their experts and the results back.
///
///     x_TD --dispatch--> x_RD (sorted by local expert) --experts--> y_RD --combine--> y_TD
///
/// combine() is the adjoint of dispatch(): the backward pass dispatches the gradient of
/// y_TD and combines the gradient of x_RD, so two operations serve both directions. With
/// expert tensor parallelism every shard of an expert sees all of its rows, and combine()
/// and return_weights() sum over the shards.
///
/// Legend: T tokens of this rank, K experts per token, E experts, L experts of this rank,
/// R rows at its experts, D hidden.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "pleat/base/arena.hpp"
#include "pleat/comm/grid.hpp"
#include "pleat/kernels/gemm.hpp"
#include "pleat/kernels/permute.hpp"
#include "pleat/plan/mapping.hpp"

namespace pleat::model {

/// \brief How the tokens of one layer and micro-batch travel; made once by plan(), used
/// by every exchange of that layer, forward and backward, also after a recomputation.
struct DispatchRecord {
  /// (token, choice) pairs by expert: of this rank's tokens and all experts (local and
  /// all-to-all), or of the tokens of all of ep*etp and this rank's experts (all-gather).
  kernels::Permutation permutation;
  std::vector<std::int64_t> host_offsets;  ///< [L + 1] first row of each local expert
  DeviceView<const std::int64_t, 1> offsets_L1;  ///< the same on the device
  std::int64_t rows = 0;                         ///< R

  // Only all-to-all; docs/dispatcher.md draws it.
  std::vector<std::int64_t> sent_rows;  ///< [ep] rows to each member of the expert axis
  std::vector<std::int64_t> received_rows;  ///< [ep] rows from each
  std::vector<std::int64_t> gathered_rows;  ///< [etp] rows that each shard received
  DeviceView<const std::int64_t, 1>
      sorted_R;  ///< row at the experts of each row that arrives
  std::vector<std::int64_t> host_segments;  ///< [S, 3] what sorted_R is made from

  kernels::GroupOffsets offsets() const { return {host_offsets, offsets_L1}; }
};

/// \brief Work that a rank does while its tokens travel. What it takes from an arena that
/// was handed to the exchange as scratch, it gives back.
using Meanwhile = std::function<void()>;

template <class T>
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;

  /// \brief Whether there are exchanges, beside which other work may run.
  virtual bool travels() const { return true; }

  /// \brief Fills the record from the router's choices (index -1: goes nowhere). The one
  /// place where the host waits for the device, for the sizes. Its views are taken from
  /// `saved`. Collective over ep*etp, as are all operations below: also for a rank
  /// without real tokens. All ranks have the same T.
  virtual void plan(const ExecSpace& exec,
                    const DeviceView<const std::int32_t, 2>& index_TK, Arena& saved,
                    Arena& scratch, DispatchRecord& record) const = 0;

  /// \brief x_RD from x_TD. `meanwhile` runs once, during the exchange.
  virtual void dispatch(const ExecSpace& exec, const DispatchRecord& record,
                        const DeviceView<const T, 2>& x_TD, Arena& scratch,
                        const DeviceView<T, 2>& x_RD,
                        const Meanwhile& meanwhile = {}) const = 0;

  /// \brief y_TD = sum over the choices of each token of its rows of y_RD.
  virtual void combine(const ExecSpace& exec, const DispatchRecord& record,
                       const DeviceView<const T, 2>& y_RD, Arena& scratch,
                       const DeviceView<T, 2>& y_TD,
                       const Meanwhile& meanwhile = {}) const = 0;

  /// \brief Routing weights travel like tokens ...
  virtual void dispatch_weights(const ExecSpace& exec, const DispatchRecord& record,
                                const DeviceView<const Accumulator<T>, 2>& weight_TK,
                                Arena& scratch,
                                const DeviceView<Accumulator<T>, 1>& weight_R) const = 0;
  /// \brief ... and their gradients come back. Pairs that went nowhere get 0.
  virtual void return_weights(const ExecSpace& exec, const DispatchRecord& record,
                              const DeviceView<const Accumulator<T>, 1>& dweight_R,
                              Arena& scratch,
                              const DeviceView<Accumulator<T>, 2>& dweight_TK) const = 0;
};

/// \brief All experts on this rank: dispatching is a permutation. The reference that the
/// dispatchers of several ranks must equal.
template <class T>
std::unique_ptr<const Dispatcher<T>> make_local_dispatcher(std::int64_t experts);

/// \brief The dispatcher of a grid, which must outlive it: the local one where ep = etp =
/// 1 and nothing is padded. Rows of an expert are ordered by source rank, then by token,
/// so that the same mapping gives the same bits. Collective over ep*etp. \param
/// padded_rows  rows that each expert gets from each source rank, filled up with zeros
///   (capacity dropping with padding: no sizes to exchange, no host synchronisation); 0:
///   as many as there are. An expert must not be chosen more often than that by a rank.
template <class T>
std::unique_ptr<const Dispatcher<T>> make_dispatcher(plan::DispatcherKind kind,
                                                     std::int64_t experts,
                                                     const comm::Grid& grid,
                                                     std::int64_t padded_rows = 0);

}  // namespace pleat::model
