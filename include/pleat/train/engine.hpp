// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Training steps on a grid, without files: what the trainer, `pleat verify` and the
/// equivalence tests have in common.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "pleat/comm/grid.hpp"
#include "pleat/io/token_data.hpp"
#include "pleat/model/transformer.hpp"
#include "pleat/train/batch_loader.hpp"
#include "pleat/train/optimizer.hpp"
#include "pleat/train/parameter_store.hpp"
#include "pleat/train/pipeline.hpp"
#include "pleat/train/run_config.hpp"

namespace pleat::train {

/// \brief The losses of a step, alike on every rank.
struct StepLosses {
  double cross_entropy = 0.0;  ///< per valid token
  double auxiliary = 0.0;      ///< coefficients included
  double z = 0.0;
  double expert_imbalance = 0.0;  ///< largest over the MoE layers
  std::int64_t dropped = 0;       ///< (token, choice) pairs
  double total() const { return cross_entropy + auxiliary + z; }
};

/// \brief What a step did, alike on every rank.
struct StepResult {
  StepLosses losses;
  double gradient_norm = 0.0;  ///< before clipping
  std::int64_t valid_tokens = 0;  ///< that carry loss; 0: no cross-entropy
  bool finite() const;
};

/// \brief Judges a step when its gradients are there, before its update: false leaves the weights
/// as they were. Alike on every rank.
using Accept = std::function<bool(const StepResult&)>;

/// \brief Accepts what is finite.
bool accept_finite(const StepResult& result);

/// \brief Whether router losses average over the global batch instead of each micro-batch.
bool balances_global_batch(const RunConfig& config);

template <class T>
class Engine {
 public:
  /// \param config, grid  must outlive the object. Collective over the grid, as are all
  /// functions below.
  Engine(const RunConfig& config, const comm::Grid& grid);

  ParameterStore<T>& store() { return store_; }
  Optimizer<T>& optimizer() { return optimizer_; }
  model::Transformer<T>& model() { return model_; }
  const model::Placement& placement() const { return placement_; }
  const comm::Grid& grid() const { return grid_; }

  /// \brief Random weights of config.run.seed.
  void initialise();
  /// \brief Losses and gradients of the samples from `first` on, then the update of the
  /// weights. They and the moments change only after `accept` was called.
  /// \param step  counts from 1
  StepResult train_step(std::int64_t step, double learning_rate, const io::TokenData& data,
                        std::int64_t first, const Accept& accept = accept_finite);
  /// \brief Checksum of the samples of the last step, each counted once over all ranks.
  std::int64_t samples_checksum() const;
  /// \brief Cross-entropy of the first held-out samples, per valid token; nothing where none
  /// of their tokens carries loss.
  std::optional<double> validate(const io::TokenData& data, std::int64_t samples);
  /// \brief Where the forward pass of the last step's samples leaves the finite numbers, else
  /// which gradient does: for an error message.
  std::string first_non_finite();

 private:
  Rounds rounds_of(const BatchLoader& loader, double cross_entropy_scale) const;
  StepLosses collect(const BatchLoader& loader, double cross_entropy_scale);
  void update(std::int64_t step, double learning_rate);
  void update_router_bias();
  std::string gradient_place();

  const RunConfig& config_;
  const comm::Grid& grid_;
  ExecSpace exec_;
  model::Placement placement_;
  ParameterStore<T> store_;
  Optimizer<T> optimizer_;
  model::Transformer<T> model_;
  Pipeline<T> pipeline_;
  model::StepSums sums_;
  BatchLoader training_;
  BatchLoader validation_;
  StagingView<double, 1> host_sums_;
  StagingView<double, 0> host_norm_;
};

}  // namespace pleat::train
