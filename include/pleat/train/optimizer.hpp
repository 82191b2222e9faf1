// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief AdamW with a global-norm clip, over the shards of this rank.

#include <cstdint>
#include <vector>

#include "pleat/base/arena.hpp"
#include "pleat/train/parameter_store.hpp"
#include "pleat/train/run_config.hpp"

namespace pleat::train {

/// \brief The optimizer's state, of this rank's shards, and its update. Only matrices are
/// decayed.
template <class T>
class Optimizer {
 public:
  using M = Master<T>;

  Optimizer(const OptimizerSection& section, const ParameterStore<T>& store,
            const comm::Grid& grid);

  /// \brief The norm over all gradients of all ranks, each element counted once, and from it
  /// the factor that clips them. Collective over the grid.
  void measure(const ExecSpace& exec, const ParameterStore<T>& store);

  /// \brief Norm of the gradients that were measured last, before clipping.
  const DeviceView<double, 0>& gradient_norm() const { return norm_; }

  /// \brief Updates the weight shards from the measured gradient shards, clipped; queued on
  /// `exec` without waiting. \param step  counts from 1
  void update(const ExecSpace& exec, std::int64_t step, double learning_rate,
              const ParameterStore<T>& store);

  /// \brief In the order of the store's shards (ParameterStore::shard_begin).
  const DeviceView<M, 1>& first_moment() const { return first_moment_N_; }
  const DeviceView<M, 1>& second_moment() const { return second_moment_N_; }

 private:
  /// A run of a shard in which every element is treated alike.
  struct Run {
    std::size_t bucket = 0;
    tensor::Range in_shard;
    bool decayed = false;
    bool counted = true;
  };
  void sum_norm(const ExecSpace& exec, const ParameterStore<T>& store);

  OptimizerSection section_;
  const comm::Grid& grid_;
  std::vector<Run> runs_;
  DeviceView<M, 1> first_moment_N_;
  DeviceView<M, 1> second_moment_N_;
  DeviceView<double, 1> squares_R_;  ///< by run
  DeviceView<double, 0> sum_of_squares_;
  DeviceView<double, 0> norm_;
  DeviceView<double, 0> clip_scale_;
  Arena scratch_{"optimizer"};
};

}  // namespace pleat::train
