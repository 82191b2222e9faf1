// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A model with weights and gradients of its own, fed from and read into host
/// memory.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/host_batch.hpp"
#include "pleat/model/transformer.hpp"

namespace pleat::test {

/// \brief A copy on the device.
template <class Element>
DeviceView<Element, 1> to_device(const std::vector<Element>& values) {
  const DeviceView<Element, 1> device("pleat::test::to_device", values.size());
  const HostView<const Element, 1> host(values.data(), values.size());
  Kokkos::deep_copy(device, host);
  return device;
}

/// \brief All elements of a view, as double, in its order.
template <class View>
std::vector<double> to_host(const View& view) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
  return {host.data(), host.data() + host.size()};
}

model::MicroBatch to_device(const HostBatch& batch);

/// \brief Every parameter of the model, random and far from its initial value: matrices
/// with elements around `deviation`, norms around 1, biases not zero.
HostTensors random_weights(const plan::ModelConfig& config, double deviation,
                           std::uint64_t seed);

/// \brief Gradient scales of a step of one micro-batch.
inline model::LossScales scales_of(const HostBatch& batch) {
  const auto valid = static_cast<double>(batch.valid());
  return {.cross_entropy = valid > 0.0 ? 1.0 / valid : 0.0, .router = 1.0};
}

template <class T>
class ModelProblem {
 public:
  ModelProblem(const plan::ModelConfig& config, std::int64_t sequence,
               plan::Recompute recompute = plan::Recompute::kNone,
               const ExecSpace& exec = ExecSpace());

  void set_weights(const HostTensors& weights);
  void set_weights(const std::string& name, const std::vector<double>& values);
  /// \brief For io::load_hugging_face_weights and the like.
  const tensor::FlatTensors<T>& weights() const { return weights_; }
  const tensor::FlatTensors<Gradient<T>>& gradients() const { return gradients_; }
  /// \brief Zeroes gradients and sums.
  void reset();
  /// \brief One micro-batch; adds to gradients and sums.
  void forward_backward(const HostBatch& batch, const model::LossScales& scales);
  /// \brief reset(), then a step of this micro-batch alone.
  void step(const HostBatch& batch);
  /// \brief reset(), then losses without gradients. \return the loss of a step
  double evaluate(const HostBatch& batch);
  std::vector<double> logits(const HostBatch& batch);
  std::int64_t first_non_finite(const HostBatch& batch);

  double cross_entropy() const;
  std::vector<double> router_losses_L2() const { return to_host(sums_.router_losses_L2); }
  std::vector<double> counts_LE() const { return to_host(sums_.counts_LE); }
  /// \brief What forward_backward differentiates.
  double total(const model::LossScales& scales) const;
  HostTensors gradient_tensors() const;
  HostTensors weight_tensors() const;
  /// \brief The whole flat buffer, padding included.
  std::vector<double> flat_gradients() const { return to_host(gradients_.flat()); }
  model::Transformer<T>& transformer() { return *transformer_; }
  std::size_t workspace_bytes() const;
  std::size_t workspace_allocations() const;

 private:
  plan::ModelConfig config_;
  model::Placement placement_;
  std::unique_ptr<const comm::Grid> grid_ = std::make_unique<comm::Grid>();
  ExecSpace exec_;
  tensor::FlatTensors<T> weights_;
  tensor::FlatTensors<Gradient<T>> gradients_;
  model::ModelTensors<T> weight_views_;
  model::ModelTensors<Gradient<T>> gradient_views_;
  model::StepSums sums_;
  std::unique_ptr<model::Transformer<T>> transformer_;
};

}  // namespace pleat::test
