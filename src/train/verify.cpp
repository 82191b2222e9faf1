// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/verify.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>

#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "pleat/comm/text.hpp"
#include "pleat/io/checksum.hpp"
#include "pleat/train/grid_choice.hpp"
#include "pleat/train/initial_weights.hpp"
#include "pleat/train/learning_rate.hpp"

namespace pleat::train {
namespace {

using comm::Axis;
using tensor::ParameterSpec;
using Host = Kokkos::View<double*, Kokkos::LayoutRight, Kokkos::HostSpace>;

constexpr std::int64_t kLosses = 5;

/// The same run on one rank. Balancing over the global batch is exact in one micro-batch.
RunConfig on_one_rank(RunConfig config) {
  config.parallel = {};
  if (balances_global_batch(config)) config.batch.micro = config.batch.global;
  return config;
}

std::array<double, kLosses> losses_of(const StepResult& result) {
  const StepLosses& losses = result.losses;
  return {losses.total(), losses.cross_entropy, losses.auxiliary, losses.z,
          result.gradient_norm};
}

/// Index in the whole tensor of element i of this rank's box (rows and columns, or a vector).
std::int64_t whole_index(const ParameterSpec& parameter, std::int64_t i) {
  if (parameter.global_shape.size() == 1) return parameter.local_offset[0] + i;
  const std::int64_t columns = parameter.local_shape[1];
  return (parameter.local_offset[0] + i / columns) * parameter.global_shape[1] +
         parameter.local_offset[1] + i % columns;
}

double relative(double value, double reference, double scale) {
  if (std::isnan(value) || std::isnan(reference)) return HUGE_VAL;
  return value == reference ? 0.0 : std::abs(value - reference) / scale;
}

double largest_element(const Host& x) {
  double largest = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x(i)));
  return largest;
}

/// The largest difference of one parameter's box, relative to the whole tensor's largest
/// element.
/// \param least  scale of a tensor that is zero but for rounding
double parameter_difference(const ParameterSpec& parameter, const Host& local,
                            const Host& whole, double least) {
  const double scale = std::max(largest_element(whole), least);
  double largest = 0.0;
  for (std::int64_t i = 0; i < parameter.local_count(); ++i) {
    largest = std::max(
        largest, relative(local(i), whole(whole_index(parameter, i)), std::max(scale, 1e-300)));
  }
  return largest;
}

void enlarge(Difference& worst, const Difference& other) {
  if (other.relative > worst.relative) worst = other;
}

/// The checksum of each tensor of the whole model, or the part of it that this rank writes
/// to files: those of all ranks add up to the whole.
std::vector<std::int64_t> tensor_checksums(const tensor::FlatTensors<double>& tensors,
                                           const tensor::ParameterLayout& whole) {
  std::vector<std::int64_t> sums;
  for (const ParameterSpec& global : whole.parameters()) {
    sums.push_back(0);
    if (!tensors.layout().contains(global.name)) continue;
    const ParameterSpec& parameter = tensors.layout().at(global.name);
    if (!parameter.written) continue;
    const Host host = host_copy(tensors.flat(parameter));
    sums.back() = static_cast<std::int64_t>(io::box_checksum(
        io::ElementType::kF64, std::as_bytes(std::span(host.data(), host.size())),
        parameter.global_shape, parameter.local_offset, parameter.local_shape));
  }
  return sums;
}

/// Of numbers in their order.
std::uint64_t hash_of(std::span<const std::int64_t> numbers) {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    hash += io::checksum_term(i, static_cast<std::uint64_t>(numbers[i]));
  }
  return hash;
}

std::uint64_t bits_checksum(const tensor::FlatTensors<double>& tensors) {
  const Host host = host_copy(tensors.flat());
  return io::content_checksum<double>(std::span<const double>(host.data(), host.size()));
}

}  // namespace

double VerifyReport::largest() const {
  return std::max({loss.relative, gradient_norm.relative, gradients.relative, weights.relative});
}

void require_mapping_independence(const RunConfig& config, const comm::GridShape& shape) {
  const plan::DropConfig& drop = config.model.moe.drop;
  const bool shared = shape.degree(Axis::kContext) * shape.degree(Axis::kTensor) > 1;
  PLEAT_REQUIRE(!drop.active() || drop.scope == plan::DropScope::kSequence || !shared,
                InputError, "PL0721",
                "moe.drop.scope = \"subsequence\" shares an expert's capacity out among the ranks "
                "that hold a sequence, so that what is dropped depends on the mapping\n"
                "HINT: verify with moe.drop.scope=sequence or moe.drop.capacity_factor=0.");
  const std::int64_t micro_batches = config.batch.global / config.batch.micro;
  PLEAT_REQUIRE(!balances_global_batch(config) || micro_batches <= shape.degree(Axis::kData), InputError,
                "PL0721",
                "moe.aux_loss.scope = \"global_batch\" is a running estimate when a data rank has "
                "several micro-batches: {} micro-batches on {} data ranks\n"
                "HINT: verify with batch.micro={}, or another scope.",
                micro_batches, shape.degree(Axis::kData),
                config.batch.global / shape.degree(Axis::kData));
}

Reference::Reference(const RunConfig& config, std::int64_t steps, const io::TokenData& data,
                     MPI_Comm world)
    : world_(world),
      ranks_(comm::make_mpi_communicator(world, "verify")),
      steps_(steps),
      layout_(model::parameter_layout(config.model)),
      start_(layout_, "pleat::train::reference_start"),
      end_(layout_, "pleat::train::reference_end"),
      losses_S5_("pleat::train::reference_losses", steps, kLosses),
      samples_S_("pleat::train::reference_samples", steps) {
  for (std::int64_t step = 0; step < steps; ++step) {
    gradients_.emplace_back(layout_, "pleat::train::reference_gradients");
  }
  if (ranks_->rank() == 0) run(on_one_rank(config), data);
  share();
}

void Reference::run(const RunConfig& config, const io::TokenData& data) {
  const comm::Grid grid;
  Engine<double> engine(config, grid);
  load_initial_weights<double>(config, engine);
  copy_tensor(start_.flat(), engine.store().whole_weights().flat());
  const auto losses = host_mirror(losses_S5_);
  const auto samples = host_mirror(samples_S_);
  for (std::int64_t s = 0; s < steps_; ++s) {
    const double rate = learning_rate(config.optimizer, config.run.steps, s + 1);
    const auto step =
        losses_of(engine.train_step(s + 1, rate, data, s * config.batch.global));
    for (std::int64_t i = 0; i < kLosses; ++i) {
      losses(s, i) = step[static_cast<std::size_t>(i)];
    }
    samples(s) = engine.samples_checksum();
    copy_tensor(gradients_[static_cast<std::size_t>(s)].flat(),
                      engine.store().whole_gradients().flat());
  }
  copy_tensor(end_.flat(), engine.store().whole_weights().flat());
  copy_tensor(losses_S5_, losses);
  copy_tensor(samples_S_, samples);
}

void Reference::share() {
  ranks_->broadcast(start_.flat(), 0);
  ranks_->broadcast(end_.flat(), 0);
  for (const Tensors& gradients : gradients_) ranks_->broadcast(gradients.flat(), 0);
  ranks_->broadcast(DeviceView<double, 1>(losses_S5_.data(), losses_S5_.size()), 0);
  ranks_->broadcast(samples_S_, 0);
  start_hash_ = hash_of(tensor_checksums(start_, *layout_));
}

/// The same number as of the reference's weights where all ranks together hold the same.
std::uint64_t Reference::content_hash(const Tensors& local) const {
  std::vector<std::int64_t> sums = tensor_checksums(local, *layout_);
  ranks_->all_reduce(HostView<std::int64_t, 1>(sums.data(), sums.size()),
                     comm::Reduction::kSum);
  return hash_of(sums);
}

Difference Reference::difference(const Tensors& local, const Tensors& whole,
                                 const std::string& what) const {
  // A gradient that cancels to zero keeps the rounding of what it was formed from.
  constexpr double kCancelled = 1.0e-5;
  const double least = kCancelled * largest_element(host_copy(whole.flat()));
  Difference worst;
  for (const ParameterSpec& parameter : local.layout().parameters()) {
    const double found =
        parameter_difference(parameter, host_copy(local.flat(parameter)),
                             host_copy(whole.flat(layout_->at(parameter.name))), least);
    enlarge(worst, {found, what + " " + parameter.name});
  }
  return worst;
}

/// The largest of all ranks, and its place.
Difference Reference::worst_of_ranks(const Difference& mine) const {
  const double largest = ranks_->all_reduce_value(mine.relative, comm::Reduction::kMax);
  const std::int64_t teller = ranks_->all_reduce_value(
      mine.relative == largest ? static_cast<std::int64_t>(ranks_->rank()) : -1,
      comm::Reduction::kMax);
  return {largest, comm::broadcast_text(*ranks_, mine.place, static_cast<int>(teller))};
}

VerifyReport Reference::compare(const RunConfig& config, const io::TokenData& data) const {
  require_mapping_independence(config, grid_shape_of(config, ranks_->size()));
  const comm::Grid grid = make_grid(config, world_, ranks_->size());
  Engine<double> engine(config, grid);
  load_initial_weights<double>(config, engine);
  const auto losses = host_copy(losses_S5_);
  const auto samples = host_copy(samples_S_);
  VerifyReport report;
  const Tensors start = engine.store().whole_weights();
  report.start_hash = content_hash(start);
  report.same_start = report.start_hash == start_hash_ &&
                      worst_of_ranks(difference(start, start_, "")).relative == 0.0;
  std::vector<std::int64_t> step_samples;
  Difference gradients;
  constexpr const char* kNames[] = {"loss", "loss_ce", "loss_aux", "loss_z", "grad_norm"};
  for (std::int64_t s = 0; s < steps_; ++s) {
    const double rate = learning_rate(config.optimizer, config.run.steps, s + 1);
    const auto step =
        losses_of(engine.train_step(s + 1, rate, data, s * config.batch.global));
    for (std::int64_t i = 0; i < kLosses; ++i) {
      const double value = step[static_cast<std::size_t>(i)];
      const double scale = std::max(std::abs(losses(s, i)), 1e-300);
      Difference& kind = i + 1 == kLosses ? report.gradient_norm : report.loss;
      enlarge(kind, {relative(value, losses(s, i), scale),
                     fmt::format("{} of step {}", kNames[i], s + 1)});
      report.fingerprint += io::checksum_term(static_cast<std::uint64_t>(s * kLosses + i),
                                              std::bit_cast<std::uint64_t>(value));
    }
    step_samples.push_back(engine.samples_checksum());
    enlarge(gradients, difference(engine.store().whole_gradients(),
                                  gradients_[static_cast<std::size_t>(s)],
                                  fmt::format("step {},", s + 1)));
  }
  report.samples_hash = hash_of(step_samples);
  report.same_samples = std::equal(step_samples.begin(), step_samples.end(), samples.data());
  const Tensors weights = engine.store().whole_weights();
  report.gradients = worst_of_ranks(gradients);
  report.weights = worst_of_ranks(difference(weights, end_, ""));
  report.fingerprint += static_cast<std::uint64_t>(ranks_->all_reduce_value(
      static_cast<std::int64_t>(io::checksum_mix(bits_checksum(weights) +
                                                 static_cast<std::uint64_t>(ranks_->rank()))),
      comm::Reduction::kSum));
  return report;
}

}  // namespace pleat::train
