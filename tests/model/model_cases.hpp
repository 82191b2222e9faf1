// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Small models and batches that between them meet every branch of the model.

#include <ostream>
#include <string>
#include <vector>

#include "model/host_batch.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::test {

struct ModelCase {
  std::string name;
  plan::ModelConfig config;
  HostBatch batch;
};

const std::vector<ModelCase>& model_cases();

/// \brief The smallest of them with a router loss of each kind: two MoE layers.
plan::ModelConfig small_model();

inline void PrintTo(const ModelCase& model_case, std::ostream* stream) {
  *stream << model_case.name;
}

}  // namespace pleat::test
