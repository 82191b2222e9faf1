// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "pleat/io/checkpoint.hpp"
#include "pleat/io/hugging_face.hpp"
#include "pleat/model/transformer.hpp"
#include "pleat/train/batch_loader.hpp"
#include "pleat/train/diagnosis.hpp"
#include "pleat/train/gradient_file.hpp"
#include "pleat/train/learning_rate.hpp"
#include "pleat/train/machine.hpp"
#include "pleat/train/metrics.hpp"
#include "pleat/train/optimizer.hpp"
#include "pleat/train/progress.hpp"
#include "pleat/train/run_folder.hpp"

namespace pleat::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The losses of a step as the host sees them.
struct StepLosses {
  double cross_entropy = 0.0;
  double auxiliary = 0.0;
  double z = 0.0;
  double expert_imbalance = 0.0;
  double total() const { return cross_entropy + auxiliary + z; }
};

/// Waits for the device and turns the sums of a step into losses.
StepLosses collect(const model::StepSums& sums, const model::LossScales& scales) {
  const auto ce = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), sums.cross_entropy);
  const auto router =
      Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), sums.router_losses_L2);
  const auto counts = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), sums.counts_LE);
  StepLosses losses{.cross_entropy = ce() * scales.cross_entropy};
  for (std::size_t l = 0; l < router.extent(0); ++l) {
    losses.auxiliary += router(l, 0) * scales.router;
    losses.z += router(l, 1) * scales.router;
    losses.expert_imbalance = std::max(
        losses.expert_imbalance,
        expert_imbalance(counts.data() + l * counts.extent(1),
                         static_cast<std::int64_t>(counts.extent(1))));
  }
  return losses;
}

/// One run in one precision.
template <class T>
class Trainer {
 public:
  Trainer(const RunConfig& config, const Runtime& runtime, Log& log);
  void run();

 private:
  void load_initial_weights();
  void load_resumed(const std::string& checkpoint);
  void open_folder();
  StepMetrics train_step(std::int64_t step);
  model::LossScales run_micro_batches();
  double validate();
  void report(const StepMetrics& metrics);
  void save(std::int64_t step);
  void finish() const;
  bool due(std::int64_t every, std::int64_t step) const {
    return step == config_.run.steps || (every > 0 && step % every == 0);
  }

  const RunConfig& config_;
  const Runtime& runtime_;
  Log& log_;
  ExecSpace exec_;
  RunFolder folder_;
  std::unique_ptr<io::TokenData> data_;
  std::shared_ptr<const tensor::ParameterLayout> layout_;
  tensor::FlatTensors<T> weights_;
  tensor::FlatTensors<T> gradients_;
  Optimizer<T> optimizer_;
  model::ModelTensors<T> weight_views_;
  model::ModelTensors<T> gradient_views_;
  model::Transformer<T> model_;
  model::StepSums sums_;
  BatchLoader training_;
  BatchLoader validation_;
  std::string hugging_face_config_;
  std::int64_t first_step_ = 1;
  std::int64_t next_sample_ = 0;
  double peak_flops_ = 0.0;
  Progress progress_;
  std::optional<MetricsWriter> metrics_;
  std::vector<double> loss_history_;
};

template <class T>
Trainer<T>::Trainer(const RunConfig& config, const Runtime& runtime, Log& log)
    : config_(config),
      runtime_(runtime),
      log_(log),
      folder_(config.run.output),
      data_(io::open_token_data(config.data, config.batch.sequence, config.model.vocab,
                                config.run.seed)),
      layout_(model::parameter_layout(config.model)),
      weights_(layout_, "pleat::train::weights"),
      gradients_(layout_, "pleat::train::gradients"),
      optimizer_(config.optimizer, layout_),
      weight_views_(model::bind_tensors<T>(config.model, weights_)),
      gradient_views_(model::bind_tensors<T>(config.model, gradients_)),
      model_(config.model, config.batch.sequence, config.precision.recompute),
      sums_(config.model),
      training_(config.batch.sequence, config.batch.micro, config.batch.global),
      validation_(config.batch.sequence, config.batch.micro, config.batch.micro),
      progress_(config.run.steps) {}

template <class T>
void Trainer<T>::load_initial_weights() {
  const std::string& init = config_.model_init;
  if (init.empty()) {
    model::initialise<T>(exec_, config_.model, config_.run.seed, weights_);
    exec_.fence("pleat::train: initialised");
  } else if (io::is_hugging_face_folder(init)) {
    hugging_face_config_ = io::read_hugging_face_config(init).text;
    io::load_hugging_face_weights<T>(init, weights_);
  } else {
    hugging_face_config_ = io::load_parameters<T>(init, weights_).hugging_face_config;
  }
}

template <class T>
void Trainer<T>::load_resumed(const std::string& checkpoint) {
  const io::CheckpointInfo info = io::load_checkpoint<T>(
      checkpoint, weights_, optimizer_.first_moment(), optimizer_.second_moment());
  hugging_face_config_ = info.hugging_face_config;
  first_step_ = info.step + 1;
  next_sample_ = info.next_sample;
  log_.info("resuming after step {} from {}", info.step, checkpoint);
}

template <class T>
void Trainer<T>::open_folder() {
  const std::string& resume = config_.checkpoint.resume;
  std::optional<std::string> checkpoint;
  if (resume == "auto") {
    checkpoint = io::find_resume_checkpoint(folder_.checkpoints(), log_);
  } else if (resume != "none") {
    checkpoint = resume;
  }
  // Everything that can be wrong with the inputs shows here, before anything is written.
  if (checkpoint) {
    load_resumed(*checkpoint);
  } else {
    load_initial_weights();
  }
  folder_.create();
  if (!checkpoint) folder_.set_aside_earlier_run(log_);
  log_.open_file(folder_.log());
  folder_.write_deck(config_.resolved_deck);
  metrics_.emplace(folder_.metrics(), first_step_ - 1);
}

template <class T>
void Trainer<T>::run() {
  open_folder();
  log_.info("{}", describe_machine(runtime_.ranks()));
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
  peak_flops_ = measure_gemm_rate<T>(exec_);
  for (std::int64_t step = first_step_; step <= config_.run.steps; ++step) {
    const Clock::time_point start = Clock::now();
    StepMetrics metrics = train_step(step);
    if (config_.validation.every > 0 && due(config_.validation.every, step)) {
      metrics.validation_loss = validate();
    }
    metrics_->write(metrics);
    if (due(config_.checkpoint.every, step)) save(step);
    progress_.add(step, seconds_since(start));
    report(metrics);
  }
  finish();
}

template <class T>
model::LossScales Trainer<T>::run_micro_batches() {
  const std::int64_t valid = training_.valid_tokens();
  const model::LossScales scales{
      .cross_entropy = valid > 0 ? 1.0 / static_cast<double>(valid) : 0.0,
      .router = 1.0 / static_cast<double>(training_.micro_batches())};
  Kokkos::deep_copy(exec_, gradients_.flat(), T(0));
  sums_.reset(exec_);
  for (std::int64_t i = 0; i < training_.micro_batches(); ++i) {
    model_.forward_backward(exec_, training_.stage(exec_, i), scales, weight_views_,
                            gradient_views_, sums_);
  }
  return scales;
}

template <class T>
StepMetrics Trainer<T>::train_step(std::int64_t step) {
  const Clock::time_point start = Clock::now();
  PhaseTimes& times = model_.times();
  times.reset();
  {
    const PhaseScope phase(times, Phase::kData);
    training_.load_training(*data_, next_sample_);
  }
  const model::LossScales scales = run_micro_batches();
  const double rate = learning_rate(config_.optimizer, config_.run.steps, step);
  {
    const PhaseScope phase(times, Phase::kOptimizer);
    optimizer_.update(exec_, step, rate, gradients_, weights_);
  }
  const StepLosses losses = collect(sums_, scales);
  const double norm = optimizer_.gradient_norm(exec_);
  if (!std::isfinite(losses.total()) || !std::isfinite(norm)) {
    fail_non_finite<T>(exec_, {step, losses.total(), norm, runtime_.rank()}, training_, model_,
                       weight_views_, gradients_);
  }
  const double seconds = seconds_since(start);
  const auto& gradients_at = config_.output.gradients_at;
  if (std::find(gradients_at.begin(), gradients_at.end(), step) != gradients_at.end()) {
    write_gradients<T>(folder_.gradients(), step, losses.total(), norm, gradients_,
                       MPI_COMM_SELF);
  }
  next_sample_ += config_.batch.global;

  const auto tokens = static_cast<double>(config_.batch.global * config_.batch.sequence);
  const double flops =
      tokens / seconds *
      plan::training_flops_per_token(config_.model, config_.batch.sequence).causal_attention;
  StepMetrics metrics{.step = step,
                      .loss = losses.total(),
                      .loss_ce = losses.cross_entropy,
                      .loss_aux = losses.auxiliary,
                      .loss_z = losses.z,
                      .learning_rate = rate,
                      .grad_norm = norm,
                      .tokens = next_sample_ * config_.batch.sequence,
                      .tokens_per_second = tokens / seconds,
                      .model_flops = flops,
                      .mfu = flops / peak_flops_,
                      .seconds = seconds,
                      .peak_memory = peak_memory_bytes(),
                      .expert_imbalance = losses.expert_imbalance,
                      .dropped = 0,
                      .validation_loss = std::nullopt};
  for (std::size_t i = 0; i < kPhases; ++i) {
    metrics.phase_seconds[i] = times.seconds(static_cast<Phase>(i));
  }
  return metrics;
}

template <class T>
double Trainer<T>::validate() {
  std::int64_t samples = data_->validation_samples();
  if (config_.validation.samples > 0) samples = std::min(samples, config_.validation.samples);
  const std::int64_t micro = config_.batch.micro;
  std::int64_t valid = 0;
  sums_.reset(exec_);
  for (std::int64_t first = 0; first < samples; first += micro) {
    validation_.load_validation(*data_, first, std::min(micro, samples - first));
    valid += validation_.valid_tokens();
    model_.evaluate(exec_, validation_.stage(exec_, 0), weight_views_, sums_);
  }
  return collect(sums_, {.cross_entropy = valid > 0 ? 1.0 / static_cast<double>(valid) : 0.0})
      .cross_entropy;
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
  const PhaseScope phase(model_.times(), Phase::kInputOutput);
  const io::CheckpointInfo info{
      .format_version = io::kCheckpointFormat,
      .step = step,
      .next_sample = next_sample_,
      .model = config_.model,
      .precision = std::is_same_v<T, double> ? "fp64" : "fp32",
      .deck = config_.resolved_deck,
      .grid = "pp=1 dp=1 cp=1 tp=1 / pp=1 edp=1 ep=1 etp=1",
      .build = build_description(),
      .hugging_face_config = hugging_face_config_};
  const std::string path =
      io::save_checkpoint<T>(folder_.checkpoints(), info, weights_, optimizer_.first_moment(),
                             optimizer_.second_moment(), MPI_COMM_SELF);
  io::prune_checkpoints(folder_.checkpoints(), config_.checkpoint.keep);
  log_.info("checkpoint {}", path);
}

template <class T>
void Trainer<T>::finish() const {
  log_.info("loss  {}  {:.4f} -> {:.4f}", sparkline(loss_history_, 60), loss_history_.front(),
            loss_history_.back());
}

}  // namespace

ExitCode train(const RunConfig& config, const Runtime& runtime, Log& log) {
  PLEAT_REQUIRE(runtime.ranks() == 1, InputError, "PL0705",
                "the job has {} ranks, but this version trains on one\n"
                "HINT: start it without a launcher, or with mpirun -n 1.",
                runtime.ranks());
  if (config.precision.compute == Precision::kFp64) {
    Trainer<double>(config, runtime, log).run();
  } else {
    Trainer<float>(config, runtime, log).run();
  }
  return ExitCode::kDone;
}

}  // namespace pleat::train
