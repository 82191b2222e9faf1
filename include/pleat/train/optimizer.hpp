// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief AdamW with a global-norm clip, over flat buffers.

#include <cstdint>

#include "pleat/base/arena.hpp"
#include "pleat/tensor/flat_tensors.hpp"
#include "pleat/train/run_config.hpp"

namespace pleat::train {

/// \brief The optimizer's state and its update. Only matrices are decayed.
template <class T>
class Optimizer {
 public:
  Optimizer(const OptimizerSection& section,
            std::shared_ptr<const tensor::ParameterLayout> layout);

  /// \brief Clips by the norm over all gradients and updates the weights. Queued on `exec`,
  /// without waiting. Gradients that are not finite leave weights and moments as they are.
  /// \param step  counts from 1
  void update(const ExecSpace& exec, std::int64_t step, double learning_rate,
              const tensor::FlatTensors<T>& gradients, const tensor::FlatTensors<T>& weights);

  /// \brief Norm of the gradients of the last update, before clipping. Waits for `exec`.
  double gradient_norm(const ExecSpace& exec) const;

  const tensor::FlatTensors<T>& first_moment() const { return first_moment_; }
  const tensor::FlatTensors<T>& second_moment() const { return second_moment_; }

 private:
  OptimizerSection section_;
  tensor::FlatTensors<T> first_moment_;
  tensor::FlatTensors<T> second_moment_;
  DeviceView<double, 0> sum_of_squares_;
  DeviceView<double, 0> norm_;
  DeviceView<double, 0> clip_scale_;
  Arena scratch_{"optimizer"};
};

}  // namespace pleat::train
