// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What a step sums up besides gradients: losses, expert loads, dropped pairs.
///
/// Legend: L layers of the whole model, E experts, C numbers of a layer's router statistics.

#include <cstdint>

#include "pleat/base/types.hpp"
#include "pleat/comm/grid.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::model {

/// \brief One layer's share of StepSums.
struct LayerSums {
  DeviceView<double, 1> losses;     ///< [2] load-balancing loss, z-loss
  DeviceView<double, 1> counts_E;   ///< (token, choice) pairs sent to each expert
  DeviceView<double, 0> dropped;    ///< (token, choice) pairs that no expert took
  DeviceView<double, 1> running_C;  ///< statistics of the step so far (scope global_batch)
  bool reports_losses = true;       ///< this rank adds the losses, which several find alike
};

/// \brief Sums over the micro-batches of a step, on the device, in fp64, with every token and
/// loss counted by exactly one rank: their sum over all ranks is the step's.
struct StepSums {
  DeviceView<double, 1> all;               ///< the buffer of those below
  DeviceView<double, 0> cross_entropy;     ///< over valid tokens, not yet divided
  DeviceView<double, 0> dropped;
  DeviceView<double, 2> router_losses_L2;  ///< load-balancing and z-loss of each layer
  DeviceView<double, 2> counts_LE;

  DeviceView<double, 2> running_LC;  ///< alike on all ranks of the stage
  bool reports_router_losses = true;
  bool reports_cross_entropy = true;

  StepSums(const plan::ModelConfig& config, const comm::Grid& grid);
  LayerSums layer(std::int64_t layer) const;
  void reset(const ExecSpace& exec) const;
};

}  // namespace pleat::model
