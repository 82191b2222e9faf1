// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Runs the micro-batches of a step through this rank's stage of the pipeline.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "pleat/model/transformer.hpp"
#include "pleat/train/pipeline_schedule.hpp"

namespace pleat::train {

/// \brief The micro-batches of this data rank: views and the weights of their losses, by round.
struct Rounds {
  std::int64_t count = 0;
  std::function<model::MicroBatch(std::int64_t round)> batch;
  std::function<model::LossScales(std::int64_t round)> scales;
};

/// \brief Activations go to the next stage and their gradients back; sends do not wait, so the
/// schedules' orders never deadlock.
template <class T>
class Pipeline {
 public:
  /// \param model, grid  must outlive the object
  Pipeline(model::Transformer<T>& model, const comm::Grid& grid);

  /// \brief Forward and backward of all rounds. Collective over the stages and, within one, as
  /// the layers are.
  void train(const ExecSpace& exec, const Rounds& rounds, const model::StepTensors<T>& step);
  /// \brief Forward only. \param look  called after each forward pass (may be empty)
  using Look = std::function<void(std::int64_t round, const model::Flight<T>& flight)>;
  void evaluate(const ExecSpace& exec, const Rounds& rounds, const model::StepTensors<T>& step,
                const Look& look = {});

 private:
  /// A micro-batch under way, and what was sent of it.
  struct Slot {
    model::Flight<T> flight;
    std::int64_t round = -1;  ///< -1: free
    comm::Pending sent_output;
    comm::Pending sent_gradient;
  };
  Slot& take_slot(std::int64_t round, std::int64_t chunk);
  Slot& slot_of(std::int64_t round, std::int64_t chunk);
  void forward(const ExecSpace& exec, const Rounds& rounds, const PipelineTask& task,
               const model::StepTensors<T>& step, bool with_gradient);
  void backward(const ExecSpace& exec, const PipelineTask& task,
                const model::StepTensors<T>& step);
  void finish();
  std::int64_t chunks() const;
  int tag(std::int64_t round, std::int64_t chunk, Work work) const;

  model::Transformer<T>& model_;
  comm::Communicator& stages_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace pleat::train
