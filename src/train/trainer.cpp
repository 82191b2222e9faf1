// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "pleat/comm/grid.hpp"
#include "pleat/comm/text.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/gradient_file.hpp"
#include "pleat/train/grid_choice.hpp"
#include "pleat/train/initial_weights.hpp"
#include "pleat/train/learning_rate.hpp"
#include "pleat/train/machine.hpp"
#include "pleat/train/metrics.hpp"
#include "pleat/train/progress.hpp"
#include "pleat/train/run_folder.hpp"

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
  Trainer(const RunConfig& config, const comm::Grid& grid, Log& log);
  void run();

 private:
  void load_resumed(const std::string& checkpoint);
  void open_folder();
  std::string find_checkpoint();
  StepMetrics train_step(std::int64_t step);
  StepMetrics metrics_of(std::int64_t step, double rate, double seconds,
                         const StepResult& result);
  void write_gradient_file(std::int64_t step, const StepResult& result);
  [[noreturn]] void fail_non_finite(std::int64_t step, const StepResult& result);
  double validate();
  void report(const StepMetrics& metrics);
  void save(std::int64_t step);
  void report_traffic() const;
  void finish() const;
  bool is_first() const { return grid_.rank() == 0; }
  bool due(std::int64_t every, std::int64_t step) const {
    return step == config_.run.steps || (every > 0 && step % every == 0);
  }

  const RunConfig& config_;
  const comm::Grid& grid_;
  Log& log_;
  RunFolder folder_;
  std::unique_ptr<io::TokenData> data_;
  std::shared_ptr<const tensor::ParameterLayout> whole_layout_;
  Engine<T> engine_;
  std::string hugging_face_config_;
  std::int64_t first_step_ = 1;
  std::int64_t next_sample_ = 0;
  double peak_flops_ = 0.0;
  Progress progress_;
  std::optional<MetricsWriter> metrics_;
  std::vector<double> loss_history_;
};

template <class T>
Trainer<T>::Trainer(const RunConfig& config, const comm::Grid& grid, Log& log)
    : config_(config),
      grid_(grid),
      log_(log),
      folder_(config.run.output),
      data_(io::open_token_data(config.data, config.batch.sequence, config.model.vocab,
                                config.run.seed)),
      whole_layout_(model::parameter_layout(config.model)),
      engine_(config, grid),
      progress_(config.run.steps) {}

template <class T>
void Trainer<T>::load_resumed(const std::string& checkpoint) {
  ParameterStore<T>& store = engine_.store();
  const Optimizer<T>& optimizer = engine_.optimizer();
  const tensor::FlatTensors<T> weights = store.whole_weights();
  const tensor::FlatTensors<T> first = store.whole(optimizer.first_moment());
  const tensor::FlatTensors<T> second = store.whole(optimizer.second_moment());
  const io::CheckpointInfo info =
      io::load_checkpoint<T>(checkpoint, *whole_layout_, weights, first, second);
  store.set_weights(weights);
  store.cut_shards(first, optimizer.first_moment());
  store.cut_shards(second, optimizer.second_moment());
  hugging_face_config_ = info.hugging_face_config;
  first_step_ = info.step + 1;
  next_sample_ = info.next_sample;
  log_.info("resuming after step {} from {}", info.step, checkpoint);
}

/// The checkpoint to resume from, which the first rank looks for; empty: none.
template <class T>
std::string Trainer<T>::find_checkpoint() {
  const std::string& resume = config_.checkpoint.resume;
  if (resume == "none") return {};
  if (resume != "auto") return resume;
  std::string found;
  if (is_first()) {
    found = io::find_resume_checkpoint(folder_.checkpoints(), log_).value_or("");
  }
  return comm::broadcast_text(grid_.group(comm::GroupName::kWorld), found, 0);
}

template <class T>
void Trainer<T>::open_folder() {
  const std::string checkpoint = find_checkpoint();
  // Everything that can be wrong with the inputs shows here, before anything is written.
  if (checkpoint.empty()) {
    hugging_face_config_ = load_initial_weights<T>(config_, engine_);
  } else {
    load_resumed(checkpoint);
  }
  grid_.group(comm::GroupName::kWorld).barrier();
  if (!is_first()) return;
  folder_.create();
  if (checkpoint.empty()) folder_.set_aside_earlier_run(log_);
  log_.open_file(folder_.log());
  folder_.write_deck(config_.resolved_deck);
  metrics_.emplace(folder_.metrics(), first_step_ - 1);
}

template <class T>
void Trainer<T>::run() {
  open_folder();
  log_.info("{}", describe_machine(static_cast<int>(grid_.shape().ranks())));
  if (grid_.shape().ranks() > 1) log_.info("{}", describe_grid(grid_.shape()));
  log_.info("{}", data_->description());
  const plan::ParameterCount count = plan::count_parameters(config_.model);
  log_.info("model: {} parameters, {} active per token; {} steps of {} tokens",
            format_count(static_cast<double>(count.total)),
            format_count(static_cast<double>(count.active)), config_.run.steps,
            config_.batch.global * config_.batch.sequence);
  if (first_step_ > config_.run.steps) {
    log_.info("the run is complete: {} of {} steps are done\nHINT: raise run.steps to go on, "
              "or set checkpoint.resume = \"none\" to begin anew.",
              first_step_ - 1, config_.run.steps);
    return;
  }
  peak_flops_ = measure_gemm_rate<T>(ExecSpace()) * static_cast<double>(grid_.shape().ranks());
  for (std::int64_t step = first_step_; step <= config_.run.steps; ++step) {
    const Clock::time_point start = Clock::now();
    StepMetrics metrics = train_step(step);
    if (config_.validation.every > 0 && due(config_.validation.every, step)) {
      metrics.validation_loss = validate();
    }
    if (metrics_) metrics_->write(metrics);
    if (due(config_.checkpoint.every, step)) save(step);
    progress_.add(step, seconds_since(start));
    report(metrics);
  }
  finish();
}

template <class T>
StepMetrics Trainer<T>::train_step(std::int64_t step) {
  const Clock::time_point start = Clock::now();
  const double rate = learning_rate(config_.optimizer, config_.run.steps, step);
  const StepResult result = engine_.train_step(step, rate, *data_, next_sample_);
  if (!result.finite()) fail_non_finite(step, result);
  const double seconds = seconds_since(start);
  write_gradient_file(step, result);
  next_sample_ += config_.batch.global;
  return metrics_of(step, rate, seconds, result);
}

template <class T>
void Trainer<T>::fail_non_finite(std::int64_t step, const StepResult& result) {
  const std::string place = engine_.first_non_finite();
  PLEAT_FAIL(NumericalError, "PL0710",
             "step {}: loss {}, gradient norm {}; NaN or Inf come up first in {}\n"
             "HINT: lower optimizer.lr, lengthen optimizer.warmup or set optimizer.clip; the "
             "last checkpoint is intact.",
             step, result.losses.total(), result.gradient_norm, place);
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
                      .validation_loss = std::nullopt};
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
  const PhaseScope phase(engine_.model().times(), Phase::kInputOutput);
  const io::CheckpointInfo info{
      .format_version = io::kCheckpointFormat,
      .step = step,
      .next_sample = next_sample_,
      .model = config_.model,
      .precision = std::is_same_v<T, double> ? "fp64" : "fp32",
      .deck = config_.resolved_deck,
      .grid = describe_grid(grid_.shape()),
      .build = build_description(),
      .hugging_face_config = hugging_face_config_};
  ParameterStore<T>& store = engine_.store();
  const std::string path = io::save_checkpoint<T>(
      folder_.checkpoints(), info, *whole_layout_, store.whole_weights(),
      store.whole(engine_.optimizer().first_moment()),
      store.whole(engine_.optimizer().second_moment()), grid_.files());
  if (is_first()) io::prune_checkpoints(folder_.checkpoints(), config_.checkpoint.keep);
  log_.info("checkpoint {}", path);
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
    Trainer<double>(config, grid, log).run();
  } else {
    Trainer<float>(config, grid, log).run();
  }
  return ExitCode::kDone;
}

}  // namespace pleat::train
