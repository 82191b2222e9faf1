// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What a run tells while it goes on: metrics.csv, lines of the log, its summary.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pleat/base/log.hpp"
#include "pleat/base/phase.hpp"
#include "pleat/comm/grid.hpp"
#include "pleat/io/token_data.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/metrics.hpp"
#include "pleat/train/progress.hpp"
#include "pleat/train/run_config.hpp"
#include "pleat/train/run_folder.hpp"

namespace pleat::train {

class RunReport {
 public:
  /// \param config, grid, log  must outlive the object
  RunReport(const RunConfig& config, const comm::Grid& grid, Log& log);

  /// \brief Opens the files of a run that goes on with `first_step`: rows and lines of later
  /// steps, which a killed job wrote behind its last checkpoint, are cut off. First rank only.
  void open(const RunFolder& folder, std::int64_t first_step);
  /// \brief The lines at the beginning: machine, grid, data, model.
  void describe(const io::TokenData& data) const;

  /// \param peak_flops  what the machine could do, of all ranks
  /// \param samples  trained so far, this step included
  /// \param times  of the step. Collective.
  StepMetrics metrics_of(std::int64_t step, double learning_rate, double seconds,
                         const StepResult& result, std::int64_t samples, double peak_flops,
                         const PhaseTimes& times) const;
  /// \brief Row and line of a step that is done. \throws IoError PL0702
  /// \param wall_seconds  with everything around the step
  void add(const StepMetrics& metrics, double wall_seconds);
  /// \brief Rows are on the disk before the checkpoint that continues behind them.
  void sync();
  /// \brief Forgets the rows behind a step to which the run has returned.
  void rewind(std::int64_t step);
  /// \brief The lines at the end.
  void finish() const;

 private:
  void report_traffic() const;
  void report_waiting() const;

  const RunConfig& config_;
  const comm::Grid& grid_;
  Log& log_;
  Progress progress_;
  std::optional<MetricsWriter> metrics_;
  std::vector<double> losses_;  ///< of this job's steps
};

}  // namespace pleat::train
