// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The instrument with which a mapping is checked: all gradients of a step in a file.

#include <cstdint>
#include <string>

#include <mpi.h>

#include "pleat/tensor/flat_tensors.hpp"

namespace pleat::train {

/// \brief Writes FOLDER/step_NNNNNNNN.h5 with a data set grads/NAME for each parameter, in its
/// global shape and the precision of T, before clipping; attributes `step`, `loss` and
/// `grad_norm`. Collective over the communicator.
/// \param whole  layout of the whole model; each rank writes what its own calls written \throws IoError PL0303
template <class T>
void write_gradients(const std::string& folder, std::int64_t step, double loss,
                     double gradient_norm, const tensor::ParameterLayout& whole,
                     const tensor::FlatTensors<T>& gradients,
                     MPI_Comm comm);

}  // namespace pleat::train
