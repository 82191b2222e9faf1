// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The whole model, forward and backward, one micro-batch at a time.
///
/// Legend: T tokens, D hidden, V vocabulary, L layers, E experts.

#include <cstdint>
#include <memory>
#include <vector>

#include "pleat/model/block.hpp"
#include "pleat/model/context.hpp"
#include "pleat/model/parameters.hpp"

namespace pleat::model {

/// \brief Sums over the micro-batches of a step, on the device, in fp64.
struct StepSums {
  DeviceView<double, 0> cross_entropy;    ///< over valid tokens, not yet divided
  DeviceView<double, 2> router_losses_L2; ///< load-balancing and z-loss of each layer
  DeviceView<double, 2> counts_LE;        ///< (token, choice) pairs sent to each expert

  explicit StepSums(const plan::ModelConfig& config);
  void reset(const ExecSpace& exec) const;
};

/// \brief Weights of a micro-batch's losses in the loss of the step.
struct LossScales {
  double cross_entropy = 1.0;  ///< 1 / (valid tokens of the global batch)
  double router = 1.0;         ///< 1 / (micro-batches of the global batch)
};

/// \brief The model: owns its workspace, borrows weights and gradients.
template <class T>
class Transformer {
 public:
  /// \param sequence  longest sequence that it will see
  Transformer(const plan::ModelConfig& config, std::int64_t sequence, plan::Recompute recompute);

  const plan::ModelConfig& config() const { return config_; }

  /// \brief Losses of one micro-batch and their gradients; both accumulate.
  void forward_backward(const ExecSpace& exec, const MicroBatch& batch, const LossScales& scales,
                        const ModelTensors<T>& weights, const ModelTensors<T>& gradients,
                        const StepSums& sums);

  /// \brief Losses only.
  void evaluate(const ExecSpace& exec, const MicroBatch& batch, const ModelTensors<T>& weights,
                const StepSums& sums);

  /// \brief logits_TV of every token (tests and text generation).
  void logits(const ExecSpace& exec, const MicroBatch& batch, const ModelTensors<T>& weights,
              const DeviceView<T, 2>& logits_TV);

  /// \brief Where a forward pass first leaves the finite numbers: 0 the embedding, l + 1 block
  /// l, layers + 1 the final norm; -1 nowhere. Synchronises the host; for error messages.
  std::int64_t first_non_finite(const ExecSpace& exec, const MicroBatch& batch,
                                const ModelTensors<T>& weights);

  /// \brief Activations of the layers of the last forward pass (tests). Valid until the next
  /// call, and only what the recompute mode keeps.
  const std::vector<BlockActivations<T>>& activations() const { return activations_; }

  PhaseTimes& times() { return times_; }
  const Workspace& workspace() const { return *workspace_; }

 private:
  Context context(const ExecSpace& exec, Arena& saved, plan::Recompute recompute);
  BlockSetup<T> setup() const { return {config_, rope_, *dispatcher_}; }
  DeviceView<T, 2> embed(const Context& context, const MicroBatch& batch,
                         const ModelTensors<T>& weights);
  DeviceView<T, 2> run_blocks(const Context& context, const MicroBatch& batch,
                              const ModelTensors<T>& weights, const StepSums* sums,
                              DeviceView<T, 2> x_TD);
  void block_backward_from_kept(const Context& context, std::int64_t layer,
                                const MicroBatch& batch, const ModelTensors<T>& weights,
                                double router_loss_scale, const ModelTensors<T>& gradients,
                                const DeviceView<T, 2>& dx_TD);
  DeviceView<T, 2> final_norm(const Context& context, const ModelTensors<T>& weights,
                              const DeviceView<T, 2>& x_TD);

  plan::ModelConfig config_;
  plan::Recompute recompute_;
  kernels::RopeTables<T> rope_;
  std::unique_ptr<const Dispatcher<T>> dispatcher_;
  std::unique_ptr<Workspace> workspace_;
  PhaseTimes times_;
  std::vector<BlockActivations<T>> activations_;
  std::vector<DeviceView<T, 2>> block_input_TD_;  ///< [L + 1], the last is the output
  DeviceView<Accumulator<T>, 1> final_inverse_rms_T_;
};

}  // namespace pleat::model
