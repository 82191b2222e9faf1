// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Finding out where a step left the finite numbers.

#include <cstdint>

#include "pleat/model/transformer.hpp"
#include "pleat/tensor/flat_tensors.hpp"
#include "pleat/train/batch_loader.hpp"

namespace pleat::train {

/// \brief What was seen.
struct NonFiniteStep {
  std::int64_t step = 0;
  double loss = 0.0;
  double gradient_norm = 0.0;
  int rank = 0;
};

/// \brief Runs the step's forward passes again, layer by layer, and says where NaN or Inf come
/// up first; where the forward pass is finite, the gradient that is not. The weights must be
/// those of the failed step. \throws NumericalError PL0710 always
template <class T>
[[noreturn]] void fail_non_finite(const ExecSpace& exec, const NonFiniteStep& seen,
                                  BatchLoader& samples, model::Transformer<T>& model,
                                  const model::ModelTensors<T>& weights,
                                  const tensor::FlatTensors<T>& gradients);

}  // namespace pleat::train
