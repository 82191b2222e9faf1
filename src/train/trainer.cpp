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
#include "pleat/train/deck_changes.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/gradient_file.hpp"
#include "pleat/train/grid_choice.hpp"
#include "pleat/train/initial_weights.hpp"
#include "pleat/train/learning_rate.hpp"
#include "pleat/train/loss_guard.hpp"
#include "pleat/train/machine.hpp"
#include "pleat/train/run_folder.hpp"
#include "pleat/train/run_history.hpp"
#include "pleat/train/run_lock.hpp"
#include "pleat/train/run_report.hpp"
#include "pleat/train/stop_requests.hpp"
#include "pleat/train/watchdog.hpp"

namespace pleat::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// As deck and checkpoint name it.
template <class T>
constexpr const char* kPrecisionName = "fp32";
template <>
constexpr const char* kPrecisionName<double> = "fp64";
template <>
constexpr const char* kPrecisionName<Bf16> = "bf16";

/// One run in one precision. Files are written by the first rank, or by all ranks together.
template <class T>
class Trainer {
 public:
  Trainer(const RunConfig& config, const comm::Grid& grid, Log& log, Watchdog& watchdog);
  ExitCode run();

 private:
  void open_folder();
  void write_folder(const std::optional<Resumed>& resumed);
  void lock_folder();
  void adopt(const Resumed& resumed);
  ExitCode train_steps();
  std::optional<StepMetrics> try_step(std::int64_t step);
  std::int64_t intervene(Verdict verdict, std::int64_t step, const StepResult& result);
  std::int64_t roll_back(std::int64_t step);
  void write_gradient_file(std::int64_t step, const StepResult& result);
  std::string last_checkpoint();
  [[noreturn]] void fail_step(std::int64_t step, const StepResult& result);
  std::optional<double> validate();
  void tell_of_no_loss(std::int64_t step);
  void save(std::int64_t step);
  void keep_up_with_checkpoint(std::int64_t step);
  bool must_stop(std::int64_t step);
  std::string whereabouts();
  bool is_first() const { return grid_.rank() == 0; }
  bool due(std::int64_t every, std::int64_t step) const {
    return step == config_.run.steps || (every > 0 && step % every == 0);
  }

  const RunConfig& config_;
  const comm::Grid& grid_;
  Log& log_;
  Watchdog& watchdog_;
  RunFolder folder_;
  StopRequests stops_;
  std::optional<RunLock> lock_;
  std::unique_ptr<io::TokenData> data_;
  std::string data_identity_;
  std::shared_ptr<const tensor::ParameterLayout> whole_layout_;
  Engine<T> engine_;
  Checkpoints<T> checkpoints_;
  LossGuard guard_;
  std::string hugging_face_config_;
  std::string history_;
  std::int64_t first_step_ = 1;
  std::int64_t next_sample_ = 0;
  std::atomic<std::int64_t> step_ = 0;  ///< under way, 0 at start-up; the watchdog reads it
  std::int64_t saved_step_ = 0;
  double longest_step_ = 0.0;
  double peak_flops_ = 0.0;
  bool told_of_no_loss_ = false;
  double stalled_told_ = 0.0;  ///< what metrics.csv has of the time that checkpoints took
  RunReport report_;
};

template <class T>
Trainer<T>::Trainer(const RunConfig& config, const comm::Grid& grid, Log& log,
                    Watchdog& watchdog)
    : config_(config),
      grid_(grid),
      log_(log),
      watchdog_(watchdog),
      folder_(config.run.output),
      stops_(config.run.wall_limit, config.run.output),
      data_(io::open_token_data(config.data, config.batch.sequence, config.model.vocab,
                                config.run.seed)),
      data_identity_(data_->identity()),
      whole_layout_(model::parameter_layout(config.model)),
      engine_(config, grid),
      checkpoints_(config, folder_.checkpoints(), grid, log),
      guard_(config.guard),
      report_(config, grid, log) {}

template <class T>
void Trainer<T>::adopt(const Resumed& resumed) {
  const io::CheckpointInfo& info = resumed.info;
  hugging_face_config_ = info.hugging_face_config;
  history_ = info.history;
  first_step_ = info.step + 1;
  saved_step_ = info.step;
  next_sample_ = info.next_sample;
  guard_.restore(info.recent_losses, info.skipped, info.rollbacks);
  warn_of_changed_data(info.data_identity, data_identity_, log_);
  log_.info("resuming after step {} from {}", info.step, resumed.path);
}

template <class T>
void Trainer<T>::lock_folder() {
  if (!is_first() || lock_) return;
  folder_.require_places();
  lock_.emplace(folder_.path(), log_);
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
  if (is_first()) write_folder(resumed);
  grid_.group(comm::GroupName::kWorld).barrier();  // the folders are there
}

/// First rank.
template <class T>
void Trainer<T>::write_folder(const std::optional<Resumed>& resumed) {
  folder_.create();
  lock_folder();
  if (!resumed) folder_.set_aside_earlier_run(log_);
  folder_.make_folders(!config_.output.gradients_at.empty());
  if (resumed) checkpoints_.go_on_from(*resumed);
  stops_.forget_earlier();
  folder_.write_deck(config_.resolved_deck);
  report_.open(folder_, first_step_);
}

template <class T>
ExitCode Trainer<T>::run() {
  const Watchdog::Place place(watchdog_, [this] { return whereabouts(); });
  watchdog_.alive();
  open_folder();
  watchdog_.alive();
  report_.describe(*data_);
  if (first_step_ == 1 && !config_.model_init.empty())
    log_.info("initial weights: {}", config_.model_init);
  if (config_.run.wall_limit == "auto" && !batch_system_seconds_left()) {
    log_.warn("run.wall_limit = \"auto\": no batch system tells when this job ends; there is no limit");
  }
  if (first_step_ > config_.run.steps) {
    log_.info("the run is complete: {} of {} steps are done\nHINT: raise run.steps to go on, "
              "or set checkpoint.resume = \"none\" to begin anew.",
              first_step_ - 1, config_.run.steps);
    return ExitCode::kDone;
  }
  peak_flops_ = measure_gemm_rate<T>(ExecSpace()) * static_cast<double>(grid_.shape().ranks());
  watchdog_.alive();
  return train_steps();
}

template <class T>
ExitCode Trainer<T>::train_steps() {
  for (std::int64_t step = first_step_; step <= config_.run.steps; ++step) {
    const Clock::time_point start = Clock::now();
    std::optional<StepMetrics> metrics = try_step(step);
    watchdog_.alive();
    if (!metrics) {
      step = step_ - 1;  // the same step with the next batch, or an earlier one
      if (must_stop(step)) return ExitCode::kStoppedEarly;
      continue;
    }
    if (config_.validation.every > 0 && due(config_.validation.every, step)) {
      metrics->validation_loss = validate();
      watchdog_.alive();
    }
    const double seconds = seconds_since(start);
    longest_step_ = std::max(longest_step_, seconds);
    keep_up_with_checkpoint(step);
    report_.add(*metrics, seconds);
    if (due(config_.checkpoint.every, step)) save(step);
    watchdog_.alive();
    if (must_stop(step)) return ExitCode::kStoppedEarly;
  }
  checkpoints_.finish();
  report_.finish();
  return ExitCode::kDone;
}

/// Nothing if the step was not accepted; `step_` is then the one to go on with.
template <class T>
std::optional<StepMetrics> Trainer<T>::try_step(std::int64_t step) {
  step_ = step;
  const Clock::time_point start = Clock::now();
  const double rate = learning_rate(config_.optimizer, config_.run.steps, step);
  const double waited = grid_.waited_seconds();
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
  const double exposed = grid_.waited_seconds() - waited;
  if (result.valid_tokens == 0) tell_of_no_loss(step);
  write_gradient_file(step, result);
  next_sample_ += config_.batch.global;
  StepMetrics metrics = report_.metrics_of(step, rate, seconds, result, next_sample_,
                                           peak_flops_, engine_.model().times());
  metrics.skipped = guard_.skipped();
  metrics.rollbacks = guard_.rollbacks();
  metrics.seconds_checkpoint = checkpoints_.stalled_seconds() - stalled_told_;
  metrics.seconds_waiting = exposed;
  stalled_told_ = checkpoints_.stalled_seconds();
  return metrics;
}

/// Leaves the batch out. Returns the step to go on with.
template <class T>
std::int64_t Trainer<T>::intervene(Verdict verdict, std::int64_t step,
                                   const StepResult& result) {
  if (verdict == Verdict::kStop) {
    checkpoints_.wait();  // the one under way is the newest: not to be lost with this step
    fail_step(step, result);
  }
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
  // A regular one, wherever the run was stopped: the interruptions change nothing.
  const std::optional<Resumed> resumed = checkpoints_.go_back(engine_, step);
  PLEAT_REQUIRE(resumed, NumericalError, "PL0711",
                "step {}: guard asks for a rollback, but there is no regular checkpoint yet\n"
                "HINT: lower checkpoint.every, or use \"skip\" until the run is stable.",
                step);
  log_.warn("back to step {} from {}", resumed->info.step, resumed->path);
  guard_.restore(resumed->info.recent_losses);
  saved_step_ = resumed->info.step;
  if (is_first()) checkpoints_.go_on_from(*resumed);
  report_.rewind(resumed->info.step);
  return resumed->info.step + 1;
}

/// For the end of a message. Collective: one that is being written is waited for.
template <class T>
std::string Trainer<T>::last_checkpoint() {
  if (saved_step_ == 0) return "there is no checkpoint yet";
  checkpoints_.wait();
  return fmt::format("the last checkpoint is that of step {}", saved_step_);
}

template <class T>
void Trainer<T>::fail_step(std::int64_t step, const StepResult& result) {
  if (!result.finite()) {
    const std::string place = engine_.first_non_finite();
    PLEAT_FAIL(NumericalError, "PL0710",
               "step {}: loss {}, gradient norm {}; NaN or Inf come up first in {}\n"
               "HINT: lower optimizer.lr, lengthen optimizer.warmup or set optimizer.clip; {}.",
               step, result.losses.total(), result.gradient_norm, place, last_checkpoint());
  }
  PLEAT_FAIL(NumericalError, "PL0712",
             "step {}: loss {} is more than guard.spike_factor = {} times {}, the median of the "
             "last {} steps\nHINT: see guard.spike; {}.",
             step, result.losses.total(), config_.guard.spike_factor, guard_.median(),
             config_.guard.spike_window, last_checkpoint());
}

template <class T>
void Trainer<T>::write_gradient_file(std::int64_t step, const StepResult& result) {
  const auto& steps = config_.output.gradients_at;
  if (std::find(steps.begin(), steps.end(), step) == steps.end()) return;
  write_gradients<Gradient<T>>(folder_.gradients(), step, result.losses.total(),
                               result.gradient_norm, *whole_layout_,
                               engine_.store().whole_gradients(), grid_.files());
}

template <class T>
std::optional<double> Trainer<T>::validate() {
  std::int64_t samples = data_->validation_samples();
  if (config_.validation.samples > 0) samples = std::min(samples, config_.validation.samples);
  const std::optional<double> loss = engine_.validate(*data_, samples);
  if (!loss) {
    log_.warn("validation: no token of the {} held-out samples carries loss: there is no "
              "validation loss",
              samples);
  }
  return loss;
}

/// A loss of 0 must not be taken for a good one. Once: it may be every other step.
template <class T>
void Trainer<T>::tell_of_no_loss(std::int64_t step) {
  if (told_of_no_loss_) return;
  told_of_no_loss_ = true;
  log_.warn("step {}: no token of its batch carries loss (data.loss_mask, data.lengths): a "
            "cross-entropy of 0 says nothing; later steps of this kind are not told",
            step);
}

template <class T>
void Trainer<T>::save(std::int64_t step) {
  if (step == saved_step_) return;
  report_.sync();
  const PhaseScope phase(engine_.model().times(), Phase::kInputOutput);
  checkpoints_.start({.format_version = io::kCheckpointFormat,
                      .step = step,
                      .next_sample = next_sample_,
                      .model = config_.model,
                      .precision = kPrecisionName<T>,
                      .deck = config_.resolved_deck,
                      .grid = describe_grid(grid_.shape()),
                      .build = build_description(),
                      .hugging_face_config = hugging_face_config_,
                      .history = history_,
                      .skipped = guard_.skipped(),
                      .rollbacks = guard_.rollbacks(),
                      .recent_losses = guard_.recent_losses(),
                      .data_identity = data_identity_},
                     engine_);
  saved_step_ = step;
}

/// Before a step is reported, so that a kill never takes back more of what was reported
/// than checkpoint.beside allows.
template <class T>
void Trainer<T>::keep_up_with_checkpoint(std::int64_t step) {
  checkpoints_.poll();
  if (step - saved_step_ >= config_.checkpoint.beside) checkpoints_.wait();
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
  const std::int64_t step = step_;
  return fmt::format("in {}{}{}", step == 0 ? "start-up" : fmt::format("step {}", step),
                     phase ? fmt::format(", phase {}", phase_name(*phase)) : "",
                     exchange.empty() ? "" : ", " + exchange);
}

}  // namespace

ExitCode train(const RunConfig& config, const Runtime& runtime, Log& log) {
  require_same_deck(config, runtime.world());
  const comm::Grid grid = make_grid(config, runtime.world(), runtime.ranks());
  // A Trainer opens files and allots memory before it runs: that may hang as well.
  Watchdog watchdog(static_cast<double>(config.run.watchdog), grid.describe_rank(),
                    [] { return "in start-up, opening data and allotting memory"; });
  switch (config.precision.compute) {
    case Precision::kFp64:
      return Trainer<double>(config, grid, log, watchdog).run();
    case Precision::kFp32:
      return Trainer<float>(config, grid, log, watchdog).run();
    case Precision::kBf16:
      return Trainer<Bf16>(config, grid, log, watchdog).run();
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown precision");
}

}  // namespace pleat::train
