// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/step_sums.hpp"

#include "pleat/base/copy.hpp"

namespace pleat::model {
namespace {

using comm::Axis;

DeviceView<double, 1> row(const DeviceView<double, 2>& x, std::int64_t index) {
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  return DeviceView<double, 1>(x.data() + index * columns, columns);
}

}  // namespace

StepSums::StepSums(const plan::ModelConfig& config, const comm::Grid& grid)
    : all("pleat::model::step_sums", 2 + config.layers * (2 + config.moe.experts)),
      cross_entropy(all.data()),
      dropped(all.data() + 1),
      router_losses_L2(all.data() + 2, config.layers, 2),
      counts_LE(all.data() + 2 + 2 * config.layers, config.layers, config.moe.experts) {
  const bool first_of_batch =
      grid.coordinate(Axis::kContext) == 0 && grid.coordinate(Axis::kTensor) == 0;
  const bool global = config.moe.auxiliary_scope == plan::AuxiliaryScope::kGlobalBatch;
  reports_router_losses = first_of_batch && (!global || grid.coordinate(Axis::kData) == 0);
  reports_cross_entropy = grid.coordinate(Axis::kTensor) == 0;
  if (global) {
    running_LC = DeviceView<double, 2>("pleat::model::running_statistics", config.layers,
                                       2 * config.moe.experts + 2);
  }
}

LayerSums StepSums::layer(std::int64_t layer) const {
  LayerSums sums{.losses = row(router_losses_L2, layer),
                 .counts_E = row(counts_LE, layer),
                 .dropped = dropped,
                 .running_C = {},
                 .reports_losses = reports_router_losses};
  if (running_LC.size() > 0) sums.running_C = row(running_LC, layer);
  return sums;
}

void StepSums::reset(const ExecSpace& exec) const {
  fill_tensor(exec, all, 0.0);
  fill_tensor(exec, running_LC, 0.0);
}

}  // namespace pleat::model
