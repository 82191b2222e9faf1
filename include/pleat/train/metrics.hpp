// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief metrics.csv: one row of numbers for each step of a run.

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "pleat/base/phase.hpp"

namespace pleat::train {

/// \brief What one step measured; the members are the columns, in their order.
struct StepMetrics {
  std::int64_t step = 0;  ///< counted from 1
  double loss = 0.0;      ///< loss_ce + loss_aux + loss_z, nats
  double loss_ce = 0.0;   ///< cross-entropy per valid token
  double loss_aux = 0.0;  ///< load balancing, coefficient included
  double loss_z = 0.0;    ///< router z-loss, coefficient included
  double learning_rate = 0.0;
  double grad_norm = 0.0;          ///< before clipping
  std::int64_t tokens = 0;         ///< trained so far, this step included
  double tokens_per_second = 0.0;  ///< of this step
  double model_flops = 0.0;   ///< achieved FLOP/s, causal rule, recomputation not counted
  std::optional<double> mfu;  ///< model_flops over the peak; empty: peak unknown
  double seconds = 0.0;  ///< wall time of the step, validation and checkpoint excluded
  std::int64_t peak_memory = 0;   ///< bytes of one rank, largest since the start
  double expert_imbalance = 0.0;  ///< largest over the MoE layers, see expert_imbalance()
  std::int64_t dropped = 0;       ///< (token, choice) pairs that no expert took
  std::optional<double> validation_loss;  ///< empty: none after this step
  std::int64_t skipped = 0;         ///< batches left out since the run began
  std::int64_t rollbacks = 0;       ///< returns to a checkpoint since the run began
  double seconds_checkpoint = 0.0;  ///< that the steps waited for checkpoints
  double seconds_waiting = 0.0;     ///< that the first rank waited for exchanges
  std::array<double, kPhases> phase_seconds{};
};

/// \brief The header line without its line end.
std::string metrics_header();

/// \brief One row without its line end. Losses and norms have 17 significant digits, so
/// reading them gives the same doubles; missing values are empty fields.
std::string metrics_row(const StepMetrics& metrics);

/// \brief Appends rows to metrics.csv. Each row is handed to the system at once, so that a
/// killed process loses none of them; only sync() waits for the disk, against the loss of the
/// machine itself.
class MetricsWriter {
 public:
  /// \brief Opens the file of a run that continues after `resumed_step` (0: a new run, an
  /// existing file is replaced). Rows of later steps and a torn last line are cut off
  /// first, in a copy that is renamed, so that a kill at any moment loses no row. Rows of a
  /// version with fewer columns get empty fields; a file with unknown columns is kept as
  /// `<path>.old`. \throws InputError PL0701 the file cannot be made; IoError PL0702
  MetricsWriter(const std::string& path, std::int64_t resumed_step);

  /// \throws IoError PL0702
  void write(const StepMetrics& metrics);
  /// \brief Drops the rows after `step`, as the constructor does. \throws IoError PL0702
  void rewind(std::int64_t step);
  /// \brief Waits until all rows are on the disk. \throws IoError PL0702
  void sync();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void open(std::int64_t last_step);
  void require_written(bool written, const std::string& what) const;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// \brief Largest expert's share of the (token, choice) pairs over the mean share: 1 when
/// balanced, the number of experts when all go to one. 0 without any pair.
double expert_imbalance(const double* counts, std::int64_t experts);

/// \brief Largest resident memory of this process so far, in bytes; 0 where unknown.
std::int64_t peak_memory_bytes();

}  // namespace pleat::train
