// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What a run must have in common with a golden case.

#include <string>
#include <vector>

#include "pleat/io/hdf5.hpp"

namespace pleat::test {

using Values = std::vector<double>;

/// \brief Compares element by element where the file has float64, else by checksums and to the
/// rounding of the file. \param tolerance  relative to the largest element
void expect_tensor(const std::string& name, const Values& values, const io::Hdf5Dataset& golden,
                   double tolerance);

inline constexpr std::size_t kTraceSteps = 20;

/// \brief Losses, gradient norms and learning rates of the first steps, relative.
void expect_trace(const std::string& metrics_path, const std::string& trace_path,
                  double loss_tolerance, double norm_tolerance,
                  std::size_t steps = kTraceSteps);

/// \brief Every gradient of a gradient file against grads/ of golden.h5.
void expect_gradients(const std::string& gradients_path, const std::string& golden_path);

/// \brief Every tensor of a model folder, stored in float64, against final_weights/.
void expect_final_weights(const std::string& model_folder, const std::string& trace_path);

}  // namespace pleat::test
