// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/diagnosis.hpp"

#include <string>

#include <fmt/format.h>

#include "pleat/base/error.hpp"
#include "pleat/kernels/elementwise.hpp"

namespace pleat::train {
namespace {

/// "layer 3" and the like, from Transformer::first_non_finite.
std::string place_name(std::int64_t place, std::int64_t layers) {
  if (place == 0) return "the embedding";
  if (place > layers) return "the final norm";
  return fmt::format("layer {} (counted from 0)", place - 1);
}

/// Where the forward pass of some micro-batch fails; empty when it does not.
template <class T>
std::string forward_place(const ExecSpace& exec, BatchLoader& samples,
                          model::Transformer<T>& model, const model::ModelTensors<T>& weights) {
  for (std::int64_t i = 0; i < samples.micro_batches(); ++i) {
    const std::int64_t place = model.first_non_finite(exec, samples.stage(exec, i), weights);
    if (place >= 0) {
      return fmt::format("the output of {} in micro-batch {}",
                         place_name(place, model.config().layers), i);
    }
  }
  return {};
}

/// The last parameter, seen from the input, whose gradient is not finite: the backward pass
/// meets it first.
template <class T>
std::string gradient_place(const ExecSpace& exec, const tensor::FlatTensors<T>& gradients) {
  const auto& parameters = gradients.layout().parameters();
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    if (kernels::has_non_finite<T>(exec, gradients.flat(*parameter))) {
      return fmt::format("the gradient of '{}'", parameter->name);
    }
  }
  return "the logits of the head, or a sum that overflows";
}

}  // namespace

template <class T>
void fail_non_finite(const ExecSpace& exec, const NonFiniteStep& seen, BatchLoader& samples,
                     model::Transformer<T>& model, const model::ModelTensors<T>& weights,
                     const tensor::FlatTensors<T>& gradients) {
  std::string place = forward_place(exec, samples, model, weights);
  if (place.empty()) place = gradient_place(exec, gradients);
  PLEAT_FAIL(NumericalError, "PL0710",
             "step {}: loss {}, gradient norm {} on rank {}; NaN or Inf come up first in {}\n"
             "HINT: lower optimizer.lr, lengthen optimizer.warmup or set optimizer.clip; the "
             "last checkpoint is intact.",
             seen.step, seen.loss, seen.gradient_norm, seen.rank, place);
}

#define PLEAT_INSTANTIATE(T)                                                          \
  template void fail_non_finite<T>(const ExecSpace&, const NonFiniteStep&,            \
                                   BatchLoader&, model::Transformer<T>&,              \
                                   const model::ModelTensors<T>&,                     \
                                   const tensor::FlatTensors<T>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::train
