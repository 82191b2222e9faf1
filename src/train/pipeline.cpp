// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/pipeline.hpp"

#include <algorithm>

#include "pleat/base/error.hpp"
#include "pleat/model/tensor_rows.hpp"

namespace pleat::train {

template <class T>
Pipeline<T>::Pipeline(model::Transformer<T>& model, const comm::Grid& grid)
    : model_(model), stages_(grid.group(comm::GroupName::kPipeline)) {}

template <class T>
std::int64_t Pipeline<T>::chunks() const {
  return static_cast<std::int64_t>(model_.placement().chunks.size());
}

/// Names a message by the chunk of the receiver.
template <class T>
int Pipeline<T>::tag(std::int64_t round, std::int64_t chunk, Work work) const {
  return static_cast<int>(2 * (round * chunks() + chunk) + (work == Work::kForward ? 0 : 1));
}

template <class T>
typename Pipeline<T>::Slot& Pipeline<T>::take_slot(std::int64_t round, std::int64_t chunk) {
  // A slot whose messages have not left is passed over: to wait for them here could wait for a
  // stage that waits for this one.
  auto slot = std::find_if(slots_.begin(), slots_.end(), [](const auto& candidate) {
    return candidate->round < 0 && candidate->sent_output.ready() &&
           candidate->sent_gradient.ready();
  });
  if (slot == slots_.end()) slot = slots_.insert(slot, std::make_unique<Slot>());
  (*slot)->sent_output.wait();
  (*slot)->sent_gradient.wait();
  (*slot)->round = round;
  (*slot)->flight.chunk = chunk;
  return **slot;
}

template <class T>
typename Pipeline<T>::Slot& Pipeline<T>::slot_of(std::int64_t round, std::int64_t chunk) {
  for (auto& slot : slots_) {
    if (slot->round == round && slot->flight.chunk == chunk) return *slot;
  }
  PLEAT_FAIL(InternalError, "PL0100", "micro-batch {} of chunk {} is not under way", round,
             chunk);
}

template <class T>
void Pipeline<T>::forward(const ExecSpace& exec, const Rounds& rounds, const PipelineTask& task,
                          const model::StepTensors<T>& step, bool with_gradient) {
  Slot& slot = take_slot(task.micro_batch, task.chunk);
  model::Flight<T>& flight = slot.flight;
  model_.begin(flight, task.chunk, rounds.batch(task.micro_batch),
               rounds.scales(task.micro_batch));
  if (!model_.is_first(flight)) {
    const PhaseScope phase(model_.times(), Phase::kPipeline);
    const int from = (stages_.rank() + stages_.size() - 1) % stages_.size();
    stages_.receive(model::flat(flight.input_TD), from,
                    tag(task.micro_batch, task.chunk, Work::kForward)).wait();
  }
  model_.forward(exec, flight, step, with_gradient);
  if (model_.is_last(flight)) return;
  const bool wraps = stages_.rank() + 1 == stages_.size();
  slot.sent_output = stages_.send(
      model::flat(flight.output_TD), (stages_.rank() + 1) % stages_.size(),
      tag(task.micro_batch, task.chunk + (wraps ? 1 : 0), Work::kForward));
}

template <class T>
void Pipeline<T>::backward(const ExecSpace& exec, const PipelineTask& task,
                           const model::StepTensors<T>& step) {
  Slot& slot = slot_of(task.micro_batch, task.chunk);
  model::Flight<T>& flight = slot.flight;
  DeviceView<T, 2> dx_TD = flight.doutput_TD;
  if (!model_.is_last(flight)) {
    const PhaseScope phase(model_.times(), Phase::kPipeline);
    dx_TD = flight.kept.template take<T>(flight.output_TD.extent(0), flight.output_TD.extent(1));
    stages_.receive(model::flat(dx_TD), (stages_.rank() + 1) % stages_.size(),
                    tag(task.micro_batch, task.chunk, Work::kBackward)).wait();
  }
  model_.backward(exec, flight, step, dx_TD);
  if (!model_.is_first(flight)) {
    const bool wraps = stages_.rank() == 0;
    const int to = (stages_.rank() + stages_.size() - 1) % stages_.size();
    slot.sent_gradient =
        stages_.send(model::flat(dx_TD), to,
                     tag(task.micro_batch, task.chunk - (wraps ? 1 : 0), Work::kBackward));
  }
  slot.round = -1;
}

template <class T>
void Pipeline<T>::finish() {
  const PhaseScope phase(model_.times(), Phase::kPipeline);
  for (auto& slot : slots_) {
    slot->sent_output.wait();
    slot->sent_gradient.wait();
    slot->round = -1;
  }
}

template <class T>
void Pipeline<T>::train(const ExecSpace& exec, const Rounds& rounds,
                        const model::StepTensors<T>& step) {
  for (const PipelineTask& task :
       pipeline_tasks(stages_.size(), stages_.rank(), chunks(), rounds.count)) {
    if (task.work == Work::kForward) {
      forward(exec, rounds, task, step, true);
    } else {
      backward(exec, task, step);
    }
  }
  finish();
}

template <class T>
void Pipeline<T>::evaluate(const ExecSpace& exec, const Rounds& rounds,
                           const model::StepTensors<T>& step, const Look& look) {
  for (std::int64_t round = 0; round < rounds.count; ++round) {
    for (std::int64_t chunk = 0; chunk < chunks(); ++chunk) {
      forward(exec, rounds, {Work::kForward, round, chunk}, step, false);
      Slot& slot = slot_of(round, chunk);
      if (look) look(round, slot.flight);
      slot.round = -1;
    }
  }
  finish();
}

template class Pipeline<float>;
template class Pipeline<double>;
template class Pipeline<Bf16>;

}  // namespace pleat::train
