// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What every layer is handed besides its tensors.

#include <cstdint>

#include "pleat/base/arena.hpp"
#include "pleat/base/phase.hpp"
#include "pleat/base/types.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::model {

/// \brief One micro-batch on the device: B whole sequences of S tokens, T = B S.
struct MicroBatch {
  std::int64_t sequences = 0;
  std::int64_t sequence = 0;
  DeviceView<const std::int32_t, 1> tokens_T;
  DeviceView<const std::int32_t, 1> labels_T;
  DeviceView<const std::uint8_t, 1> loss_mask_T;
  DeviceView<const std::uint8_t, 1> real_T;  ///< 0: padding
  std::int64_t tokens() const { return sequences * sequence; }
};

/// \brief Memory of a step.
struct Workspace {
  Arena saved{"saved"};            ///< from forward to backward
  Arena recomputed{"recomputed"};  ///< what the backward pass computes again, block by block
  Arena scratch{"scratch"};        ///< within one layer
};

/// \brief Handed down to the layers. `saved` is where a layer puts what its backward pass
/// needs; it is Workspace::saved, or Workspace::recomputed while a block is computed again.
struct Context {
  const ExecSpace& exec;
  Arena& saved;
  Arena& scratch;
  PhaseTimes& times;
  plan::Recompute recompute = plan::Recompute::kNone;

  bool keeps_inner() const { return recompute == plan::Recompute::kNone; }
  /// \brief Where a layer's inner activations go: kept, or computed again later.
  Arena& inner() const { return keeps_inner() ? saved : scratch; }
};

}  // namespace pleat::model
