// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/run_report.hpp"

#include "pleat/plan/model_config.hpp"
#include "pleat/train/machine.hpp"

namespace pleat::train {

RunReport::RunReport(const RunConfig& config, const comm::Grid& grid, Log& log)
    : config_(config), grid_(grid), log_(log), progress_(config.run.steps) {}

void RunReport::open(const RunFolder& folder, std::int64_t first_step) {
  trim_log(folder.log(), first_step - 1);
  log_.open_file(folder.log());
  metrics_.emplace(folder.metrics(), first_step - 1);
}

void RunReport::describe(const io::TokenData& data) const {
  log_.info("{}", describe_machine(static_cast<int>(grid_.shape().ranks())));
  if (grid_.shape().ranks() > 1) log_.info("{}", describe_grid(grid_.shape()));
  if (grid_.backend() == comm::BackendKind::kNccl)
    log_.info("exchanges between devices: {}", comm::backend_name(grid_.backend()));
  log_.info("{}", data.description());
  const plan::ParameterCount count = plan::count_parameters(config_.model);
  log_.info("model: {} parameters, {} active per token; {} steps of {} tokens",
            format_count(static_cast<double>(count.total)),
            format_count(static_cast<double>(count.active)), config_.run.steps,
            config_.batch.global * config_.batch.sequence);
}

StepMetrics RunReport::metrics_of(std::int64_t step, double learning_rate, double seconds,
                                  const StepResult& result, std::int64_t samples,
                                  double peak_flops, const PhaseTimes& times) const {
  const auto tokens = static_cast<double>(config_.batch.global * config_.batch.sequence);
  const double flops =
      tokens / seconds *
      plan::training_flops_per_token(config_.model, config_.batch.sequence).causal_attention;
  StepMetrics metrics{.step = step,
                      .loss = result.losses.total(),
                      .loss_ce = result.losses.cross_entropy,
                      .loss_aux = result.losses.auxiliary,
                      .loss_z = result.losses.z,
                      .learning_rate = learning_rate,
                      .grad_norm = result.gradient_norm,
                      .tokens = samples * config_.batch.sequence,
                      .tokens_per_second = tokens / seconds,
                      .model_flops = flops,
                      .mfu = flops / peak_flops,
                      .seconds = seconds,
                      .peak_memory = grid_.group(comm::GroupName::kWorld)
                                         .all_reduce_value(peak_memory_bytes(),
                                                           comm::Reduction::kMax),
                      .expert_imbalance = result.losses.expert_imbalance,
                      .dropped = result.losses.dropped,
                      .validation_loss = std::nullopt};
  for (std::size_t i = 0; i < kPhases; ++i) {
    metrics.phase_seconds[i] = times.seconds(static_cast<Phase>(i));
  }
  return metrics;
}

void RunReport::add(const StepMetrics& metrics, double wall_seconds) {
  if (metrics_) metrics_->write(metrics);
  progress_.add(metrics.step, wall_seconds);
  losses_.push_back(metrics.loss);
  if (metrics.validation_loss) {
    log_.info("step {:>6}  validation loss {:.4f}", metrics.step, *metrics.validation_loss);
  }
  const bool first = losses_.size() == 1;
  const bool last = metrics.step == config_.run.steps;
  if (first || last || metrics.step % config_.output.every == 0) {
    log_.info("{}", progress_.line(metrics, false));
  } else if (log_.interactive()) {
    log_.progress(progress_.line(metrics, true));
  }
}

void RunReport::sync() {
  if (metrics_) metrics_->sync();
}

void RunReport::rewind(std::int64_t step) {
  if (metrics_) metrics_->rewind(step);
}

/// What the first rank has sent in an average step.
void RunReport::report_traffic() const {
  if (grid_.shape().ranks() == 1) return;
  log_.info("sent by the first rank, per step (with checkpoints and validation):");
  const auto steps = static_cast<double>(losses_.size());
  for (const auto& [group, traffic] : grid_.traffic()) {
    for (std::size_t i = 0; i < comm::kExchanges; ++i) {
      const comm::Traffic::Entry& entry = traffic.entries[i];
      if (entry.calls == 0) continue;
      log_.info("  {:<20} {:<15} {:>8.1f} calls {:>9}B", group,
                comm::exchange_name(static_cast<comm::Exchange>(i)),
                static_cast<double>(entry.calls) / steps, format_count(entry.bytes / steps));
    }
  }
}

/// What is left of the exchanges' time beside the work, in an average step.
void RunReport::report_waiting() const {
  if (grid_.shape().ranks() == 1) return;
  log_.info("waited for by the first rank, per step (with checkpoints and validation):");
  const auto steps = static_cast<double>(losses_.size());
  for (const auto& [group, seconds] : grid_.waited()) {
    if (seconds > 0.0) log_.info("  {:<20} {:>9.2f} ms", group, 1e3 * seconds / steps);
  }
}

void RunReport::finish() const {
  report_traffic();
  report_waiting();
  log_.info("loss  {}  {:.4f} -> {:.4f}", sparkline(losses_, 60), losses_.front(),
            losses_.back());
}

}  // namespace pleat::train
