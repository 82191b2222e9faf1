// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A model on one mapping of four ranks against one rank.

#include "mappings.hpp"
#include "pleat/comm/grid_shape.hpp"
#include "pleat/train/verify.hpp"

namespace pleat::test {

/// \brief The configuration with these degrees.
train::RunConfig on(train::RunConfig config, const comm::Degrees& degrees);

/// \brief Expects losses, norm, gradients and weights of one rank, with both dispatchers.
/// The reference keeps everything, so that what recomputation repeats would show.
/// Collective.
void expect_same(const train::RunConfig& config, const io::TokenData& data);
/// \brief The same with ragged samples of the model's vocabulary.
void expect_same(const train::RunConfig& config);

}  // namespace pleat::test
