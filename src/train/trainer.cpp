// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/trainer.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "pleat/comm/grid.hpp"
#include "pleat/train/checkpoints.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/gradient_file.hpp"
#include "pleat/train/grid_choice.hpp"
#include "pleat/train/initial_weights.hpp"
#include "pleat/train/learning_rate.hpp"
#include "pleat/train/loss_guard.hpp"
#include "pleat/train/machine.hpp"
#include "pleat/train/metrics.hpp"
#include "pleat/train/progress.hpp"
#include "pleat/train/run_folder.hpp"
#include "pleat/train/run_history.hpp"
#include "pleat/train/run_lock.hpp"
#include "pleat/train/stop_requests.hpp"
#include "pleat/train/watchdog.hpp"

namespace pleat::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The largest value over all ranks.
std::int64_t largest_of_ranks(const comm::Grid& grid, std::int64_t value) {
  return grid.group(comm::GroupName::kWorld).all_reduce_value(value, comm::Reduction::kMax);
}

/// One run in one precision. Files are written by the first rank, or by all ranks together.
template <class T>
class Trainer {
 public:
  Trainer(const RunConfig& config, const comm::Grid& grid, bool threads, Log& log);
  ExitCode run();

 private:
  void open_folder();
  void lock_folder();
  void adopt(const Resumed& resumed);
  void describe() const;
  ExitCode train_steps();
  std::optional<StepMetrics> try_step(std::int64_t step);
  std::int64_t intervene(Verdict verdict, std::int64_t step, const StepResult& result);
  std::int64_t roll_back(std::int64_t step);
  StepMetrics metrics_of(std::int64_t step, double rate, double seconds,
                         const StepResult& result);
  void write_gradient_file(std::int64_t step, const StepResult& result);
  [[noreturn]] void fail_step(std::int64_t step, const StepResult& result);
  double validate();
  void report(const StepMetrics& metrics);
  void save(std::int64_t step);
  bool must_stop(std::int64_t step);
  void report_traffic() const;
  void finish() const;
  std::string whereabouts();
  bool is_first() const { return grid_.rank() == 0; }
  bool due(std::int64_t every, std::int64_t step) const {
    return step == config_.run.steps || (every > 0 && step % every == 0);
  }

  const RunConfig& config_;
  const comm::Grid& grid_;
  Log& log_;
  RunFolder folder_;
  StopRequests stops_;
  std::optional<RunLock> lock_;
  std::unique_ptr<io::TokenData> data_;
  std::shared_ptr<const tensor::ParameterLayout> whole_layout_;
  Engine<T> engine_;
  Checkpoints<T> checkpoints_;
  LossGuard guard_;
  std::string hugging_face_config_;
  std::string history_;
  std::int64_t first_step_ = 1;
  std::int64_t next_sample_ = 0;
  std::atomic<std::int64_t> step_ = 0;  ///< under way; the watchdog reads it
  std::int64_t saved_step_ = 0;
  double longest_step_ = 0.0;
  double peak_flops_ = 0.0;
  Progress progress_;
  std::optional<MetricsWriter> metrics_;
  std::vector<double> loss_history_;
};

template <class T>
Trainer<T>::Trainer(const RunConfig& config, const comm::Grid& grid, bool threads, Log& log)
    : config_(config),
      grid_(grid),
      log_(log),
      folder_(config.run.output),
      stops_(config.run.wall_limit, config.run.output),
      data_(io::open_token_data(config.data, config.batch.sequence, config.model.vocab,
                                config.run.seed)),
      whole_layout_(model::parameter_layout(config.model)),
      engine_(config, grid),
      checkpoints_(config, folder_.checkpoints(), grid, threads, log),
      guard_(config.guard),
      progress_(config.run.steps) {}

template <class T>
void Trainer<T>::adopt(const Resumed& resumed) {
  const io::CheckpointInfo& info = resumed.info;
  hugging_face_config_ = info.hugging_face_config;
  history_ = info.history;
  first_step_ = info.step + 1;
  saved_step_ = info.step;
  next_sample_ = info.next_sample;
  guard_.restore(info.recent_losses, info.skipped, info.rollbacks);
  log_.info("resuming after step {} from {}", info.step, resumed.path);
}

template <class T>
void Trainer<T>::lock_folder() {
  if (is_first() && !lock_) lock_.emplace(folder_.path(), log_);
}

/// Everything that can be wrong with the inputs shows before anything but the lock is written.
template <class T>
void Trainer<T>::open_folder() {
  if (folder_.exists()) lock_folder();
  const std::optional<Resumed> resumed = checkpoints_.resume(engine_);
  if (resumed) {
    adopt(*resumed);
  } else {
    hugging_face_config_ = load_initial_weights<T>(config_, engine_);
  }
  history_ = extended_history(history_, history_line(first_step_ - 1, grid_.shape()));
  grid_.group(comm::GroupName::kWorld).barrier();
  if (!is_first()) return;
  folder_.create();
  lock_folder();
  if (!resumed) folder_.set_aside_earlier_run(log_);
  trim_log(folder_.log(), first_step_ - 1);
  log_.open_file(folder_.log());
  folder_.write_deck(config_.resolved_deck);
  metrics_.emplace(folder_.metrics(), first_step_ - 1);
}

template <class T>
void Trainer<T>::describe() const {
  log_.info("{}", describe_machine(static_cast<int>(grid_.shape().ranks())));
  if (grid_.shape().ranks() > 1) log_.info("{}", describe_grid(grid_.shape()));
  log_.info("{}", data_->description());
  const plan::ParameterCount count = plan::count_parameters(config_.model);
  log_.info("model: {} parameters, {} active per token; {} steps of {} tokens",
            format_count(static_cast<double>(count.total)),
            format_count(static_cast<double>(count.active)), config_.run.steps,
            config_.batch.global * config_.batch.sequence);
}

template <class T>
ExitCode Trainer<T>::run() {
  open_folder();
  describe();
  if (first_step_ > config_.run.steps) {
    log_.info("the run is complete: {} of {} steps are done\nHINT: raise run.steps to go on, "
              "or set checkpoint.resume = \"none\" to begin anew.",
              first_step_ - 1, config_.run.steps);
    return ExitCode::kDone;
  }
  peak_flops_ = measure_gemm_rate<T>(ExecSpace()) * static_cast<double>(grid_.shape().ranks());
  return train_steps();
}

template <class T>
ExitCode Trainer<T>::train_steps() {
  Watchdog watchdog(static_cast<double>(config_.run.watchdog), grid_.describe_rank(),
                    [this] { return whereabouts(); });
  for (std::int64_t step = first_step_; step <= config_.run.steps; ++step) {
    const Clock::time_point start = Clock::now();
    const double stalled_before = checkpoints_.stalled_seconds();
    std::optional<StepMetrics> metrics = try_step(step);
    watchdog.alive();
    if (!metrics) {
      step = step_ - 1;  // the same step with the next batch, or an earlier one
      continue;
    }
    if (config_.validation.every > 0 && due(config_.validation.every, step)) {
      metrics->validation_loss = validate();
      watchdog.alive();
    }
    checkpoints_.poll();
    if (due(config_.checkpoint.every, step)) save(step);
    metrics->seconds_checkpoint = checkpoints_.stalled_seconds() - stalled_before;
    if (metrics_) metrics_->write(*metrics);
    longest_step_ = std::max(longest_step_, seconds_since(start));
    progress_.add(step, seconds_since(start));
    report(*metrics);
    if (must_stop(step)) return ExitCode::kStoppedEarly;
  }
  checkpoints_.finish();
  finish();
  return ExitCode::kDone;
}

/// Nothing if the step was not accepted; `step_` is then the one to go on with.
template <class T>
std::optional<StepMetrics> Trainer<T>::try_step(std::int64_t step) {
  step_ = step;
  const Clock::time_point start = Clock::now();
  const double rate = learning_rate(config_.optimizer, config_.run.steps, step);
  Verdict verdict = Verdict::kAccept;
  const StepResult result =
      engine_.train_step(step, rate, *data_, next_sample_, [&](const StepResult& gradients) {
        verdict = guard_.judge(gradients.losses.total(), gradients.finite());
        if (verdict != Verdict::kAccept) return false;
        checkpoints_.before_update();
        return true;
      });
  if (verdict != Verdict::kAccept) {
    step_ = intervene(verdict, step, result);
    return std::nullopt;
  }
  const double seconds = seconds_since(start);
  write_gradient_file(step, result);
  next_sample_ += config_.batch.global;
  return metrics_of(step, rate, seconds, result);
}

/// Leaves the batch out. Returns the step to go on with.
template <class T>
std::int64_t Trainer<T>::intervene(Verdict verdict, std::int64_t step,
                                   const StepResult& result) {
  if (verdict == Verdict::kStop) fail_step(step, result);
  const std::int64_t behind = next_sample_ + config_.batch.global;
  log_.warn("step {}: loss {}, gradient norm {}, median of recent losses {}: samples {} to {} "
            "are left out",
            step, result.losses.total(), result.gradient_norm, guard_.median(), next_sample_,
            behind - 1);
  const std::int64_t next = verdict == Verdict::kRollback ? roll_back(step) : step;
  next_sample_ = behind;
  return next;
}

template <class T>
std::int64_t Trainer<T>::roll_back(std::int64_t step) {
  checkpoints_.wait();
  const std::optional<Resumed> resumed = checkpoints_.newest(engine_);
  PLEAT_REQUIRE(resumed, NumericalError, "PL0711",
                "step {}: guard asks for a rollback, but there is no checkpoint yet\n"
                "HINT: lower checkpoint.every, or use \"skip\" until the run is stable.",
                step);
  log_.warn("back to step {} from {}", resumed->info.step, resumed->path);
  guard_.restore(resumed->info.recent_losses);
  saved_step_ = resumed->info.step;
  if (metrics_) metrics_->rewind(resumed->info.step);
  return resumed->info.step + 1;
}

template <class T>
void Trainer<T>::fail_step(std::int64_t step, const StepResult& result) {
  if (!result.finite()) {
    const std::string place = engine_.first_non_finite();
    PLEAT_FAIL(NumericalError, "PL0710",
               "step {}: loss {}, gradient norm {}; NaN or Inf come up first in {}\n"
               "HINT: lower optimizer.lr, lengthen optimizer.warmup or set optimizer.clip; the "
               "last checkpoint is intact.",
               step, result.losses.total(), result.gradient_norm, place);
  }
  PLEAT_FAIL(NumericalError, "PL0712",
             "step {}: loss {} is more than guard.spike_factor = {} times {}, the median of the "
             "last {} steps\nHINT: see guard.spike; the last checkpoint is intact.",
             step, result.losses.total(), config_.guard.spike_factor, guard_.median(),
             config_.guard.spike_window);
}

template <class T>
void Trainer<T>::write_gradient_file(std::int64_t step, const StepResult& result) {
  const auto& steps = config_.output.gradients_at;
  if (std::find(steps.begin(), steps.end(), step) == steps.end()) return;
  write_gradients<T>(folder_.gradients(), step, result.losses.total(), result.gradient_norm,
                     *whole_layout_, engine_.store().whole_gradients(), grid_.files());
}

template <class T>
StepMetrics Trainer<T>::metrics_of(std::int64_t step, double rate, double seconds,
                                   const StepResult& result) {
  const auto tokens = static_cast<double>(config_.batch.global * config_.batch.sequence);
  const double flops =
      tokens / seconds *
      plan::training_flops_per_token(config_.model, config_.batch.sequence).causal_attention;
  StepMetrics metrics{.step = step,
                      .loss = result.losses.total(),
                      .loss_ce = result.losses.cross_entropy,
                      .loss_aux = result.losses.auxiliary,
                      .loss_z = result.losses.z,
                      .learning_rate = rate,
                      .grad_norm = result.gradient_norm,
                      .tokens = next_sample_ * config_.batch.sequence,
                      .tokens_per_second = tokens / seconds,
                      .model_flops = flops,
                      .mfu = flops / peak_flops_,
                      .seconds = seconds,
                      .peak_memory = largest_of_ranks(grid_, peak_memory_bytes()),
                      .expert_imbalance = result.losses.expert_imbalance,
                      .dropped = result.losses.dropped,
                      .validation_loss = std::nullopt,
                      .skipped = guard_.skipped(),
                      .rollbacks = guard_.rollbacks()};
  for (std::size_t i = 0; i < kPhases; ++i) {
    metrics.phase_seconds[i] = engine_.model().times().seconds(static_cast<Phase>(i));
  }
  return metrics;
}

template <class T>
double Trainer<T>::validate() {
  std::int64_t samples = data_->validation_samples();
  if (config_.validation.samples > 0) samples = std::min(samples, config_.validation.samples);
  return engine_.validate(*data_, samples);
}

template <class T>
void Trainer<T>::report(const StepMetrics& metrics) {
  loss_history_.push_back(metrics.loss);
  if (metrics.validation_loss) {
    log_.info("step {:>6}  validation loss {:.4f}", metrics.step, *metrics.validation_loss);
  }
  if (due(config_.output.every, metrics.step) || metrics.step == first_step_) {
    log_.info("{}", progress_.line(metrics, false));
  } else if (log_.interactive()) {
    log_.progress(progress_.line(metrics, true));
  }
}

template <class T>
void Trainer<T>::save(std::int64_t step) {
  if (step == saved_step_) return;
  const PhaseScope phase(engine_.model().times(), Phase::kInputOutput);
  checkpoints_.start({.format_version = io::kCheckpointFormat,
                      .step = step,
                      .next_sample = next_sample_,
                      .model = config_.model,
                      .precision = std::is_same_v<T, double> ? "fp64" : "fp32",
                      .deck = config_.resolved_deck,
                      .grid = describe_grid(grid_.shape()),
                      .build = build_description(),
                      .hugging_face_config = hugging_face_config_,
                      .history = history_,
                      .skipped = guard_.skipped(),
                      .rollbacks = guard_.rollbacks(),
                      .recent_losses = guard_.recent_losses()},
                     engine_);
  saved_step_ = step;
}

/// Asks for a checkpoint of its own where someone wants the run to end here.
template <class T>
bool Trainer<T>::must_stop(std::int64_t step) {
  const double needed = 2.0 * (longest_step_ + checkpoints_.longest_seconds()) + 1.0;
  const StopReason reason = stops_.agreed(grid_.group(comm::GroupName::kWorld), needed);
  if (reason == StopReason::kNone) return false;
  if (step == config_.run.steps) {
    if (is_first()) stops_.fulfilled();
    return false;
  }
  log_.info("{}: stopping after step {} of {}", stop_reason_name(reason), step,
            config_.run.steps);
  save(step);
  checkpoints_.finish();
  if (is_first()) stops_.fulfilled();
  log_.info("the same command goes on from here (exit code {})",
            static_cast<int>(ExitCode::kStoppedEarly));
  return true;
}

/// For the watchdog, on its own thread.
template <class T>
std::string Trainer<T>::whereabouts() {
  const std::optional<Phase> phase = engine_.model().times().under_way();
  const std::string exchange = grid_.exchange_under_way();
  return fmt::format("in step {}{}{}", step_.load(),
                     phase ? fmt::format(", phase {}", phase_name(*phase)) : "",
                     exchange.empty() ? "" : ", " + exchange);
}

/// What the first rank has sent in an average step.
template <class T>
void Trainer<T>::report_traffic() const {
  if (grid_.shape().ranks() == 1) return;
  log_.info("sent by the first rank, per step (with checkpoints and validation):");
  const auto steps = static_cast<double>(config_.run.steps - first_step_ + 1);
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

template <class T>
void Trainer<T>::finish() const {
  report_traffic();
  log_.info("loss  {}  {:.4f} -> {:.4f}", sparkline(loss_history_, 60), loss_history_.front(),
            loss_history_.back());
}

}  // namespace

ExitCode train(const RunConfig& config, const Runtime& runtime, Log& log) {
  require_same_deck(config, runtime.world());
  const comm::Grid grid(runtime.world(), grid_shape_of(config, runtime.ranks()));
  if (config.precision.compute == Precision::kFp64) {
    return Trainer<double>(config, grid, runtime.threads(), log).run();
  }
  return Trainer<float>(config, grid, runtime.threads(), log).run();
}

}  // namespace pleat::train
