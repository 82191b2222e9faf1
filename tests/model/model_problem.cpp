// SPDX-License-Identifier: Apache-2.0
#include "model/model_problem.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace pleat::test {
namespace {

template <class T>
HostTensors tensors_of(const tensor::FlatTensors<T>& flat) {
  HostTensors tensors;
  for (const tensor::ParameterSpec& parameter : flat.layout().parameters()) {
    tensors[parameter.name] = to_host(flat.flat(parameter));
  }
  return tensors;
}

}  // namespace

std::int64_t HostBatch::valid() const {
  return std::accumulate(loss_mask_T.begin(), loss_mask_T.end(), std::int64_t{0});
}

void HostBatch::pad(std::int64_t which, std::int64_t count) {
  const auto end = real_T.begin() + (which + 1) * sequence;
  std::fill(end - count, end, std::uint8_t{0});
  const auto end_of_loss = loss_mask_T.begin() + (which + 1) * sequence;
  std::fill(end_of_loss - count, end_of_loss, std::uint8_t{0});
}

HostBatch HostBatch::part(std::int64_t first, std::int64_t count) const {
  const auto cut = [&](const auto& values) {
    return std::decay_t<decltype(values)>(values.begin() + first * sequence,
                                          values.begin() + (first + count) * sequence);
  };
  return {count, sequence, cut(tokens_T), cut(labels_T), cut(loss_mask_T), cut(real_T)};
}

HostBatch random_batch(std::int64_t sequences, std::int64_t sequence, std::int64_t vocab,
                       std::uint64_t seed) {
  std::mt19937_64 random(seed);
  HostBatch batch{sequences, sequence, {}, {}, {}, {}};
  for (std::int64_t t = 0; t < batch.tokens(); ++t) {
    batch.tokens_T.push_back(
        static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab)));
    batch.labels_T.push_back(
        static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab)));
  }
  batch.loss_mask_T.assign(static_cast<std::size_t>(batch.tokens()), 1);
  batch.real_T = batch.loss_mask_T;
  return batch;
}

model::MicroBatch to_device(const HostBatch& batch) {
  return {.sequences = batch.sequences,
          .sequence = batch.sequence,
          .first_row = 0,
          .tokens_U = to_device(batch.tokens_T),
          .labels_U = to_device(batch.labels_T),
          .loss_mask_U = to_device(batch.loss_mask_T),
          .real_T = to_device(batch.real_T)};
}

HostTensors random_weights(const plan::ModelConfig& config, double deviation,
                           std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto uniform =
      [&random] {  // the distributions of <random> differ between libraries
        return static_cast<double>(random() >> 11) * 0x1.0p-52 - 1.0;
      };
  HostTensors weights;
  const auto layout = model::parameter_layout(config);
  for (const tensor::ParameterSpec& parameter : layout->parameters()) {
    auto& values = weights[parameter.name];
    const bool norm = parameter.initialisation == tensor::Initialisation::kOnes;
    for (std::int64_t i = 0; i < parameter.local_count(); ++i) {
      values.push_back(norm ? 1.0 + 0.3 * uniform()
                            : deviation * std::sqrt(3.0) * uniform());
    }
  }
  return weights;
}

template <class T>
ModelProblem<T>::ModelProblem(const plan::ModelConfig& config, std::int64_t sequence,
                              plan::Recompute recompute, const ExecSpace& exec)
    : config_(config),
      placement_(model::make_placement(config)),
      exec_(exec),
      weights_(model::parameter_layout(config), "pleat::test::weights"),
      gradients_(weights_.shared_layout(), "pleat::test::gradients"),
      weight_views_(model::bind_tensors<T>(placement_, weights_)),
      gradient_views_(model::bind_tensors<Gradient<T>>(placement_, gradients_)),
      sums_(config, *grid_),
      transformer_(std::make_unique<model::Transformer<T>>(
          placement_, *grid_,
          model::TransformerOptions{.sequence = sequence, .recompute = recompute})) {}

template <class T>
void ModelProblem<T>::set_weights(const HostTensors& weights) {
  for (const tensor::ParameterSpec& parameter : weights_.layout().parameters()) {
    set_weights(parameter.name, weights.at(parameter.name));
  }
}

template <class T>
void ModelProblem<T>::set_weights(const std::string& name,
                                  const std::vector<double>& values) {
  Kokkos::deep_copy(weights_.flat(weights_.layout().at(name)),
                    to_device(std::vector<T>(values.begin(), values.end())));
}

template <class T>
void ModelProblem<T>::reset() {
  Kokkos::deep_copy(exec_, gradients_.flat(), Gradient<T>(0));
  sums_.reset(exec_);
}

template <class T>
void ModelProblem<T>::forward_backward(const HostBatch& batch,
                                       const model::LossScales& scales) {
  transformer_->forward_backward(exec_, to_device(batch), scales, weight_views_,
                                 gradient_views_, sums_);
  exec_.fence("pleat::test::forward_backward");
}

template <class T>
void ModelProblem<T>::step(const HostBatch& batch) {
  reset();
  forward_backward(batch, scales_of(batch));
}

template <class T>
double ModelProblem<T>::evaluate(const HostBatch& batch) {
  sums_.reset(exec_);
  transformer_->evaluate(exec_, to_device(batch), weight_views_, sums_);
  exec_.fence("pleat::test::evaluate");
  return total(scales_of(batch));
}

template <class T>
std::vector<double> ModelProblem<T>::logits(const HostBatch& batch) {
  const DeviceView<Accumulator<T>, 2> logits_TV("pleat::test::logits", batch.tokens(),
                                                config_.vocab);
  transformer_->logits(exec_, to_device(batch), weight_views_, logits_TV);
  exec_.fence("pleat::test::logits");
  return to_host(logits_TV);
}

template <class T>
std::int64_t ModelProblem<T>::first_non_finite(const HostBatch& batch) {
  evaluate(batch);
  return transformer_->first_non_finite(exec_, transformer_->flight());
}

template <class T>
double ModelProblem<T>::cross_entropy() const {
  return to_host(sums_.cross_entropy).front();
}

template <class T>
double ModelProblem<T>::total(const model::LossScales& scales) const {
  const std::vector<double> router = router_losses_L2();
  return scales.cross_entropy * cross_entropy() +
         scales.router * std::accumulate(router.begin(), router.end(), 0.0);
}

template <class T>
HostTensors ModelProblem<T>::gradient_tensors() const {
  return tensors_of(gradients_);
}

template <class T>
HostTensors ModelProblem<T>::weight_tensors() const {
  return tensors_of(weights_);
}

template <class T>
std::size_t ModelProblem<T>::workspace_bytes() const {
  const model::Workspace& workspace = transformer_->workspace();
  return transformer_->flight().kept.capacity() + workspace.recomputed.capacity() +
         workspace.scratch.capacity();
}

template <class T>
std::size_t ModelProblem<T>::workspace_allocations() const {
  const model::Workspace& workspace = transformer_->workspace();
  return transformer_->flight().kept.allocations() + workspace.recomputed.allocations() +
         workspace.scratch.allocations();
}

template class ModelProblem<float>;
template class ModelProblem<double>;
template class ModelProblem<Bf16>;

}  // namespace pleat::test
