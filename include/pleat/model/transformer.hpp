// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief This rank's part of the model, forward and backward, one micro-batch and one chunk of
/// layers at a time.
///
/// Legend: T rows of this rank, D hidden, V vocabulary.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "pleat/model/block.hpp"
#include "pleat/model/context.hpp"
#include "pleat/model/parameters.hpp"
#include "pleat/model/placement.hpp"
#include "pleat/model/step_sums.hpp"
#include "pleat/plan/mapping.hpp"

namespace pleat::model {

/// \brief Weights of a micro-batch's losses in the gradient of the step.
struct LossScales {
  double cross_entropy = 1.0;  ///< 1 / (valid tokens of the global batch)
  double router = 1.0;         ///< 1 / (micro-batches of the global batch)
};

/// \brief Called around the work on a unit of parameters (see parameters.hpp); each may be
/// empty. They make weights present where they are sharded, say whether its gradients are
/// those of an earlier step still (without: no), and start the reduction of gradients.
struct UnitHooks {
  std::function<void(std::int64_t unit)> before;
  std::function<bool(std::int64_t unit)> is_first_backward;
  std::function<void(std::int64_t unit)> after_backward;
};

/// \brief What every micro-batch of a step works with.
template <class T>
struct StepTensors {
  const ModelTensors<T>& weights;
  const ModelTensors<Gradient<T>>& gradients;  ///< accumulate; see UnitHooks
  const StepSums& sums;              ///< accumulate
  const UnitHooks& hooks;
};

/// \brief One micro-batch on its way through one chunk: what the backward pass needs.
template <class T>
struct Flight {
  Arena kept{"kept"};
  MicroBatch batch;
  std::int64_t chunk = 0;
  LossScales scales;
  DeviceView<T, 2> input_TD;   ///< of the chunk's first layer; received, or the embedding
  DeviceView<T, 2> output_TD;  ///< of its last layer
  /// Gradient of output_TD where the loss is formed here; else it is received.
  DeviceView<T, 2> doutput_TD;
  std::vector<BlockActivations<T>> activations;    ///< by layer of the chunk
  std::vector<DeviceView<T, 2>> block_input_TD;    ///< likewise
  DeviceView<Accumulator<T>, 1> final_inverse_rms_T;
  DeviceView<T, 2> final_normed_TD;  ///< what the head reads
};

struct TransformerOptions {
  std::int64_t sequence = 0;  ///< of whole sequences; the longest that it will see
  std::int64_t micro = 1;     ///< sequences of a micro-batch; with padded experts exact
  plan::Recompute recompute = plan::Recompute::kNone;
  plan::DispatcherKind dispatcher = plan::DispatcherKind::kAllToAll;
  plan::ContextExchange exchange = plan::ContextExchange::kRing;
};

/// \brief The layers of a rank: owns its workspace, borrows weights and gradients. All ranks of
/// a stage call each function alike.
template <class T>
class Transformer {
 public:
  /// \param grid  must outlive the object
  Transformer(const Placement& placement, const comm::Grid& grid,
              const TransformerOptions& options);

  const Placement& placement() const { return placement_; }
  const comm::Grid& grid() const { return grid_; }
  bool is_first(const Flight<T>& flight) const;  ///< begins with the embedding
  bool is_last(const Flight<T>& flight) const;   ///< ends with the loss

  /// \brief Prepares a flight: gives its memory back and takes that of input_TD.
  void begin(Flight<T>& flight, std::int64_t chunk, const MicroBatch& batch,
             const LossScales& scales) const;
  /// \brief input_TD -> output_TD. The last chunk forms the losses; where `with_gradient`, it
  /// forms doutput_TD and the head's gradient at once.
  void forward(const ExecSpace& exec, Flight<T>& flight, const StepTensors<T>& step,
               bool with_gradient);
  /// \brief dx_TD holds the gradient of output_TD on entry, of input_TD on return.
  void backward(const ExecSpace& exec, Flight<T>& flight, const StepTensors<T>& step,
                const DeviceView<T, 2>& dx_TD);

  /// \brief Losses of one micro-batch and their gradients, on a stage that is the whole model.
  void forward_backward(const ExecSpace& exec, const MicroBatch& batch,
                        const LossScales& scales, const ModelTensors<T>& weights,
                        const ModelTensors<Gradient<T>>& gradients, const StepSums& sums);
  /// \brief Losses only, likewise.
  void evaluate(const ExecSpace& exec, const MicroBatch& batch, const ModelTensors<T>& weights,
                const StepSums& sums);
  /// \brief logits_TV of every token, on one rank (tests and text generation).
  void logits(const ExecSpace& exec, const MicroBatch& batch, const ModelTensors<T>& weights,
              const DeviceView<Accumulator<T>, 2>& logits_TV);

  /// \brief Where the last forward pass of a flight first left the finite numbers: 0 the
  /// embedding, l + 1 layer l, layers + 1 the final norm; -1 nowhere. Synchronises the host;
  /// for error messages.
  std::int64_t first_non_finite(const ExecSpace& exec, const Flight<T>& flight) const;

  /// \brief Activations of the layers of the last forward_backward(), evaluate() or logits()
  /// (tests). Valid until the next call, and only what the recompute mode keeps.
  const std::vector<BlockActivations<T>>& activations() const { return own_.activations; }
  /// \brief The flight of that call, and the memory that all flights share (tests).
  const Flight<T>& flight() const { return own_; }
  const Workspace& workspace() const { return *workspace_; }

  PhaseTimes& times() { return times_; }

 private:
  Context context(const ExecSpace& exec, Flight<T>& flight, Arena& saved,
                  plan::Recompute recompute);
  BlockSetup<T> setup() const;
  Slice layers(const Flight<T>& flight) const;
  void embed(const Context& context, Flight<T>& flight, const ModelTensors<T>& weights);
  void run_blocks(const ExecSpace& exec, Flight<T>& flight, const ModelTensors<T>& weights,
                  const StepSums* sums, const UnitHooks& hooks);
  DeviceView<T, 2> final_norm(const Context& context, Flight<T>& flight,
                              const ModelTensors<T>& weights);
  void form_loss(const Context& context, Flight<T>& flight, const StepTensors<T>& step);
  void form_loss_and_gradient(const Context& context, Flight<T>& flight,
                              const StepTensors<T>& step);
  void backward_layer(const ExecSpace& exec, Flight<T>& flight, std::int64_t layer,
                      const StepTensors<T>& step, const DeviceView<T, 2>& dx_TD);
  void embed_backward(const Context& context, const Flight<T>& flight,
                      const ModelTensors<Gradient<T>>& gradients,
                      const DeviceView<T, 2>& dx_TD);

  Placement placement_;
  const comm::Grid& grid_;
  plan::Recompute recompute_;
  plan::ContextExchange exchange_;
  kernels::RopeTables<T> rope_;
  std::unique_ptr<const Dispatcher<T>> dispatcher_;
  std::int64_t largest_vocab_ = 0;
  std::unique_ptr<Workspace> workspace_;
  PhaseTimes times_;
  Flight<T> own_;
};

}  // namespace pleat::model
