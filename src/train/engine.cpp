// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/engine.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "pleat/comm/text.hpp"
#include "pleat/kernels/elementwise.hpp"
#include "pleat/train/grid_choice.hpp"
#include "pleat/train/metrics.hpp"

namespace pleat::train {
namespace {

using comm::Axis;
using comm::GroupName;

/// Held-out micro-batches that are loaded at once: enough to fill the pipeline.
std::int64_t validation_micro_batches(const comm::Grid& grid) {
  return grid.degree(Axis::kData) * grid.degree(Axis::kPipeline);
}

model::TransformerOptions options_of(const RunConfig& config) {
  return {.sequence = config.batch.sequence,
          .micro = config.batch.micro,
          .recompute = config.precision.recompute,
          .dispatcher = config.parallel.dispatcher,
          .exchange = config.parallel.context_exchange};
}

/// bias += rate where an expert got fewer pairs than the mean, -= rate where more.
template <class T>
void move_bias(const ExecSpace& exec, double rate, const DeviceView<const double, 1>& counts_E,
               std::int64_t first, const DeviceView<T, 1>& bias_N) {
  const auto experts = counts_E.extent(0);
  Kokkos::parallel_for(
      "pleat::train::move_bias", Kokkos::RangePolicy<ExecSpace>(exec, 0, bias_N.extent(0)),
      KOKKOS_LAMBDA(const std::int64_t i) {
        double sum = 0.0;
        for (std::size_t e = 0; e < experts; ++e) sum += counts_E(e);
        const double excess = counts_E(first + i) * static_cast<double>(experts) - sum;
        bias_N(i) -= static_cast<T>(excess > 0.0 ? rate : (excess < 0.0 ? -rate : 0.0));
      });
}

/// "layer 3" and the like, from Transformer::first_non_finite.
std::string place_name(std::int64_t place, std::int64_t layers) {
  if (place == 0) return "the embedding";
  if (place > layers) return "the final norm";
  return fmt::format("layer {} (counted from 0)", place - 1);
}

}  // namespace

bool accept_finite(const StepResult& result) { return result.finite(); }

bool balances_global_batch(const RunConfig& config) {
  return config.model.moe.auxiliary_scope == plan::AuxiliaryScope::kGlobalBatch;
}

bool StepResult::finite() const {
  return std::isfinite(losses.total()) && std::isfinite(gradient_norm);
}

template <class T>
Engine<T>::Engine(const RunConfig& config, const comm::Grid& grid)
    : config_(config),
      grid_(grid),
      placement_(placement_of(config, grid.shape(), grid.rank())),
      store_(placement_, grid, config.parallel.sharding),
      optimizer_(config.optimizer, store_, grid),
      model_(placement_, grid, options_of(config)),
      pipeline_(model_, grid),
      sums_(config.model, grid),
      training_(grid, config.batch.sequence, config.batch.micro,
                config.batch.global / config.batch.micro),
      validation_(grid, config.batch.sequence, config.batch.micro,
                  validation_micro_batches(grid)),
      host_sums_("pleat::train::host_sums", sums_.all.size()),
      host_norm_("pleat::train::host_norm") {}

/// Each rank makes its shards: nobody needs memory for weights that are not kept.
template <class T>
void Engine<T>::initialise() {
  using M = Master<T>;
  for (const ShardPiece& piece : store_.shard_pieces()) {
    const DeviceView<M, 1> weights_N(store_.weight_shard(piece.bucket).data() + piece.in_shard,
                                     piece.in_box.size());
    model::initialise_piece<M>(exec_, config_.model, config_.run.seed, *piece.parameter,
                               piece.in_box.begin, weights_N);
  }
  exec_.fence("pleat::train::Engine::initialise");
  store_.publish_weights();
}

/// With scope global_batch a round's gradient is that of its tokens with the loads so far: of
/// `round + 1` rounds, of which the whole batch has `rounds`.
template <class T>
Rounds Engine<T>::rounds_of(const BatchLoader& loader, double cross_entropy_scale) const {
  const bool global = balances_global_batch(config_);
  const auto rounds = static_cast<double>(loader.rounds());
  const double each = 1.0 / static_cast<double>(loader.micro_batches());
  return {.count = loader.rounds(),
          .batch = [&loader](std::int64_t round) { return loader.batch(round); },
          .scales =
              [=](std::int64_t round) {
                const double router =
                    global ? static_cast<double>(round + 1) / rounds : each;
                return model::LossScales{cross_entropy_scale, router};
              }};
}

/// Sums over all ranks, and what the host makes of them. Waits for all that the step has queued.
template <class T>
StepLosses Engine<T>::collect(const BatchLoader& loader, double cross_entropy_scale) {
  // Tensor ranks find the same cross-entropy; all but the first give theirs up.
  if (!sums_.reports_cross_entropy) fill_tensor(exec_, sums_.cross_entropy, 0.0);
  grid_.group(GroupName::kWorld).all_reduce(sums_.all, comm::Reduction::kSum);
  const StagingView<double, 1>& host = host_sums_;
  copy_tensor(exec_, host, sums_.all);
  exec_.fence("pleat::train::Engine::collect");
  const double router_scale =
      balances_global_batch(config_) ? 1.0 : 1.0 / static_cast<double>(loader.micro_batches());
  StepLosses losses{.cross_entropy = host(0) * cross_entropy_scale,
                    .dropped = static_cast<std::int64_t>(host(1))};
  const std::int64_t layers = config_.model.layers;
  const std::int64_t experts = config_.model.moe.experts;
  for (std::int64_t l = 0; l < layers; ++l) {
    losses.auxiliary += host(2 + 2 * l) * router_scale;
    losses.z += host(2 + 2 * l + 1) * router_scale;
    losses.expert_imbalance =
        std::max(losses.expert_imbalance,
                 expert_imbalance(&host(2 + 2 * layers + l * experts), experts));
  }
  return losses;
}

template <class T>
StepResult Engine<T>::train_step(std::int64_t step, double learning_rate,
                                 const io::TokenData& data, std::int64_t first,
                                 const Accept& accept) {
  PhaseTimes& times = model_.times();
  times.reset();
  {
    const PhaseScope phase(times, Phase::kData);
    training_.load_training(data, first);
  }
  const std::int64_t valid = training_.valid_tokens();
  const double scale = valid > 0 ? 1.0 / static_cast<double>(valid) : 0.0;
  store_.begin_step(exec_, training_.rounds());
  sums_.reset(exec_);
  pipeline_.train(exec_, rounds_of(training_, scale),
                  {store_.weights(), store_.gradients(), sums_, store_.hooks()});
  {
    const PhaseScope phase(times, Phase::kReduction);
    store_.finish_reduction();
  }
  {
    const PhaseScope phase(times, Phase::kOptimizer);
    optimizer_.measure(exec_, store_);
  }
  copy_tensor(exec_, host_norm_, optimizer_.gradient_norm());
  const StepLosses losses = collect(training_, scale);
  const StepResult result{
      .losses = losses, .gradient_norm = host_norm_(), .valid_tokens = valid};
  if (accept(result)) update(step, learning_rate);
  return result;
}

template <class T>
void Engine<T>::update(std::int64_t step, double learning_rate) {
  {
    const PhaseScope phase(model_.times(), Phase::kOptimizer);
    optimizer_.update(exec_, step, learning_rate, store_);
    if (config_.model.moe.bias_update_rate > 0.0) update_router_bias();
  }
  const PhaseScope phase(model_.times(), Phase::kReduction);
  store_.gather_weights();
}

template <class T>
std::int64_t Engine<T>::samples_checksum() const {
  // All stages and tensor ranks hold the same samples.
  const bool counts =
      grid_.coordinate(Axis::kPipeline) == 0 && grid_.coordinate(Axis::kTensor) == 0;
  return grid_.group(GroupName::kWorld)
      .all_reduce_value(counts ? training_.checksum() : 0, comm::Reduction::kSum);
}

/// On the shards, as the optimizer's update; the loads are those of the global batch.
template <class T>
void Engine<T>::update_router_bias() {
  const tensor::ParameterLayout& layout = store_.layout();
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    const tensor::Range shard = store_.shard_range(b);
    for (const tensor::ParameterSpec& parameter : layout.parameters()) {
      if (!parameter.name.ends_with("gate.e_score_correction_bias")) continue;
      const tensor::Range common = tensor::intersection(
          shard, {parameter.offset, parameter.offset + parameter.local_count()});
      if (common.size() <= 0) continue;
      const std::int64_t layer = layout.buckets()[b].unit - 1;
      const std::int64_t in_shard = common.begin - shard.begin;
      const DeviceView<Master<T>, 1> bias_N(store_.weight_shard(b).data() + in_shard,
                                            common.size());
      move_bias<Master<T>>(exec_, config_.model.moe.bias_update_rate, sums_.layer(layer).counts_E,
                   common.begin - parameter.offset, bias_N);
      if constexpr (ParameterStore<T>::kHasMasters) {
        kernels::convert<Master<T>, T>(
            exec_, bias_N,
            DeviceView<T, 1>(store_.model_shard(b).data() + in_shard, common.size()));
      }
    }
  }
}

template <class T>
std::optional<double> Engine<T>::validate(const io::TokenData& data, std::int64_t samples) {
  const std::int64_t at_once = validation_.micro_batches() * config_.batch.micro;
  std::int64_t valid = 0;
  sums_.reset(exec_);
  for (std::int64_t first = 0; first < samples; first += at_once) {
    validation_.load_validation(data, first, std::min(at_once, samples - first));
    valid += validation_.valid_tokens();
    pipeline_.evaluate(exec_, rounds_of(validation_, 1.0),
                       {store_.weights(), store_.gradients(), sums_, store_.hooks()});
  }
  if (valid == 0) return std::nullopt;
  return collect(validation_, 1.0 / static_cast<double>(valid)).cross_entropy;
}

/// The last parameter, seen from the input, whose gradient is not finite: the backward pass
/// meets it first.
template <class T>
std::string Engine<T>::gradient_place() {
  const tensor::FlatTensors<Gradient<T>> gradients = store_.whole_gradients();
  const auto& parameters = gradients.layout().parameters();
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    if (kernels::has_non_finite<Gradient<T>>(exec_, gradients.flat(*parameter))) {
      return fmt::format("the gradient of '{}'", parameter->name);
    }
  }
  return {};
}

template <class T>
std::string Engine<T>::first_non_finite() {
  constexpr std::int64_t kNowhere = std::numeric_limits<std::int64_t>::max();
  const std::int64_t places = config_.model.layers + 2;
  std::int64_t place = kNowhere;  // of the earliest micro-batch, then the earliest layer
  sums_.reset(exec_);
  pipeline_.evaluate(
      exec_, rounds_of(training_, 1.0),
      {store_.weights(), store_.gradients(), sums_, store_.hooks()},
      [&](std::int64_t round, const model::Flight<T>& flight) {
        const std::int64_t found = model_.first_non_finite(exec_, flight);
        if (found < 0) return;
        place = std::min(place, training_.number(round) * places + found);
      });
  place = -grid_.group(GroupName::kWorld).all_reduce_value(-place, comm::Reduction::kMax);
  if (place != kNowhere) {
    return fmt::format("the output of {} in micro-batch {}",
                       place_name(place % places, config_.model.layers), place / places);
  }
  // Of the ranks that find one the last tells: the backward pass meets the last stage first.
  const std::string found = gradient_place();
  comm::Communicator& world = grid_.group(GroupName::kWorld);
  const auto teller = world.all_reduce_value(
      found.empty() ? std::int64_t{0} : static_cast<std::int64_t>(world.rank()),
      comm::Reduction::kMax);
  const std::string told = comm::broadcast_text(world, found, static_cast<int>(teller));
  return told.empty() ? "the logits of the head, or a sum that overflows" : told;
}

template class Engine<float>;
template class Engine<double>;
template class Engine<Bf16>;

}  // namespace pleat::train
