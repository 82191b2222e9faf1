// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The declarations of single sections, and the ranges that they share.

#include "pleat/train/deck_keys.hpp"

namespace pleat::train {

void declare_run_keys(io::DeckKeys& keys, RunConfig& config);
void declare_model_keys(io::DeckKeys& keys, DeckFields& fields);
void declare_moe_keys(io::DeckKeys& keys, DeckFields& fields);
void declare_parallel_keys(io::DeckKeys& keys, ParallelSection& parallel);
void declare_batch_keys(io::DeckKeys& keys, BatchSection& batch);
void declare_optimizer_keys(io::DeckKeys& keys, OptimizerSection& optimizer);
void declare_precision_keys(io::DeckKeys& keys, PrecisionSection& precision);
void declare_data_keys(io::DeckKeys& keys, io::DataConfig& data);
/// Sections [validation], [checkpoint], [guard] and [output].
void declare_output_keys(io::DeckKeys& keys, RunConfig& config);

inline io::DeckRange from_to(double low, double high) {
  return {.low = low, .high = high};
}
inline io::DeckRange at_least(double low) { return {.low = low}; }
inline io::DeckRange above(double low) { return {.low = low, .low_open = true}; }
/// [0, 1)
inline io::DeckRange fraction() { return {.low = 0.0, .high = 1.0, .high_open = true}; }

}  // namespace pleat::train
