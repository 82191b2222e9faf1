// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What every layer is handed besides its tensors.

#include <cstdint>

#include "pleat/base/arena.hpp"
#include "pleat/base/phase.hpp"
#include "pleat/base/types.hpp"
#include "pleat/comm/grid.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::model {

/// \brief One micro-batch as this rank sees it: B whole sequences, of which its context rank
/// holds S positions each, so U = B S rows in the order [sequence, position held]; its tensor
/// rank keeps rows first_row .. first_row + T - 1 of them in the residual stream. Without
/// context and tensor parallelism T = U and S is the length of the sequences.
struct MicroBatch {
  std::int64_t sequences = 0;  ///< B
  std::int64_t sequence = 0;   ///< S
  std::int64_t first_row = 0;
  DeviceView<const std::int32_t, 1> tokens_U;
  DeviceView<const std::int32_t, 1> labels_U;
  DeviceView<const std::uint8_t, 1> loss_mask_U;
  DeviceView<const std::uint8_t, 1> real_T;  ///< 0: padding
  /// \brief T.
  std::int64_t tokens() const { return static_cast<std::int64_t>(real_T.extent(0)); }
  /// \brief U.
  std::int64_t gathered_tokens() const { return sequences * sequence; }
};

/// \brief Memory that micro-batches share; what lives from forward to backward lies in an
/// arena of each of them.
struct Workspace {
  Arena recomputed{"recomputed"};  ///< what the backward pass computes again, block by block
  Arena scratch{"scratch"};        ///< within one layer
};

/// \brief Handed down to the layers. `saved` is where a layer puts what its backward pass
/// needs; it is `kept`, the memory of the micro-batch, or Workspace::recomputed when the block
/// is computed again. `kept` itself takes what must not be computed twice.
struct Context {
  const ExecSpace& exec;
  const comm::Grid& grid;
  Arena& kept;
  Arena& saved;
  Arena& scratch;
  PhaseTimes& times;
  plan::Recompute recompute = plan::Recompute::kNone;
  /// The first backward pass of a step through this unit of parameters: what its gradients
  /// hold is of an earlier step where ParameterSpec::overwritten says so.
  bool first_backward = false;

  /// \brief What an overwritten gradient is multiplied with before this pass adds its share.
  int gradient_beta() const { return first_backward ? 0 : 1; }
  bool keeps_inner() const { return recompute == plan::Recompute::kNone; }
  /// \brief Where a layer's inner activations go: kept, or computed again later.
  Arena& inner() const { return keeps_inner() ? saved : scratch; }
};

}  // namespace pleat::model
