// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/optimizer.hpp"

#include "pleat/kernels/adamw.hpp"
#include "pleat/kernels/elementwise.hpp"

namespace pleat::train {
namespace {

/// The elements of a segment.
template <class T>
DeviceView<T, 1> part(const tensor::FlatTensors<T>& tensors, const tensor::Segment& segment) {
  return DeviceView<T, 1>(tensors.flat().data() + segment.begin, segment.end - segment.begin);
}

}  // namespace

template <class T>
Optimizer<T>::Optimizer(const OptimizerSection& section,
                        std::shared_ptr<const tensor::ParameterLayout> layout)
    : section_(section),
      first_moment_(layout, "pleat::train::first_moment"),
      second_moment_(layout, "pleat::train::second_moment"),
      sum_of_squares_("pleat::train::sum_of_squares"),
      norm_("pleat::train::gradient_norm"),
      clip_scale_("pleat::train::clip_scale") {}

template <class T>
void Optimizer<T>::update(const ExecSpace& exec, std::int64_t step, double learning_rate,
                          const tensor::FlatTensors<T>& gradients,
                          const tensor::FlatTensors<T>& weights) {
  kernels::sum_of_squares<T>(exec, gradients.flat(), scratch_, sum_of_squares_);
  kernels::clip_factor(exec, section_.clip, sum_of_squares_, norm_, clip_scale_);
  for (const tensor::Segment& segment : weights.layout().segments()) {
    const kernels::AdamWOptions options{
        .learning_rate = learning_rate,
        .beta1 = section_.beta1,
        .beta2 = section_.beta2,
        .eps = section_.eps,
        .weight_decay = segment.decayed ? section_.weight_decay : 0.0,
        .step = step};
    kernels::adamw_update<T>(exec, options, clip_scale_, part(gradients, segment),
                             part(first_moment_, segment), part(second_moment_, segment),
                             part(weights, segment));
  }
}

template <class T>
double Optimizer<T>::gradient_norm(const ExecSpace& exec) const {
  double norm = 0.0;
  const HostView<double, 0> host(&norm);
  Kokkos::deep_copy(exec, host, norm_);
  exec.fence("pleat::train::Optimizer::gradient_norm");
  return norm;
}

template class Optimizer<float>;
template class Optimizer<double>;

}  // namespace pleat::train
