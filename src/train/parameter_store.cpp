// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/parameter_store.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "pleat/base/buffer.hpp"
#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "pleat/kernels/elementwise.hpp"

namespace pleat::train {
namespace {

using comm::Axis;
using comm::GroupName;
using tensor::Bucket;
using tensor::Range;

/// From the first bucket of a unit to its last; empty where the rank lacks it.
Range unit_range(const tensor::ParameterLayout& layout, std::int64_t unit) {
  Range range;
  for (const Bucket& bucket : layout.buckets()) {
    if (bucket.unit != unit) continue;
    if (range.size() == 0) range.begin = bucket.range.begin;
    range.end = bucket.range.end;
  }
  return range;
}

bool is_layer(const plan::ModelConfig& config, std::int64_t unit) {
  return unit > model::embedding_unit() && unit < model::head_unit(config);
}

std::int64_t units_of(const plan::ModelConfig& config) {
  return model::head_unit(config) + 1;
}

/// Elements of the shards whose sums are under way. Those of one layer go on during the
/// backward pass of the next one, and none of them is waited for before that; where only
/// embedding and head are summed, a bucket is while the next one starts.
std::int64_t most_under_way(const model::Placement& placement,
                            const tensor::ParameterLayout& layout,
                            plan::Sharding sharding) {
  std::vector<std::int64_t> of_unit(
      static_cast<std::size_t>(units_of(placement.whole)), 0);
  for (const Bucket& bucket : layout.buckets()) {
    const bool starts = sharding == plan::Sharding::kOptimizer && bucket.shards > 1 &&
                        is_layer(placement.whole, bucket.unit);
    if (starts) of_unit[static_cast<std::size_t>(bucket.unit)] += bucket.shard_size();
  }
  return std::max(2 * tensor::ParameterLayout::kLargestShard,
                  *std::max_element(of_unit.begin(), of_unit.end()));
}

}  // namespace

template <class T>
ParameterStore<T>::ParameterStore(const model::Placement& placement, const comm::Grid& grid,
                                  plan::Sharding sharding)
    : placement_(placement),
      grid_(grid),
      sharding_(sharding),
      layout_(model::parameter_layout(placement)),
      backwards_left_(static_cast<std::size_t>(units_of(placement.whole)), 0) {
  for (const Bucket& bucket : layout_->buckets()) {
    shard_begin_.push_back(shard_size_);
    shard_size_ += bucket.shard_size();
  }
  const std::int64_t stages = grid.degree(Axis::kPipeline);
  if (const std::optional<int> copies = placement.kv_copy_group()) {
    kv_copies_ = grid.group(GroupName::kTensor).split(*copies, "kv copies");
  }
  if (placement.whole.tied && stages > 1) {
    const bool shares = placement.shares_tied_matrix();
    tied_ = grid.group(GroupName::kPipeline).split(shares ? 0 : 1, "tied embedding");
    if (!shares) tied_.reset();
  }
  make_buffers();
  // NCCL holds nothing of its own for a sum, and to wait for one would hold back the GPU's work.
  most_under_way_ = grid.backend() == comm::BackendKind::kNccl
                        ? std::numeric_limits<std::int64_t>::max()
                        : most_under_way(placement_, *layout_, sharding_);
  weight_views_ = model::bind_tensors<T>(placement_, unit_weights_);
  gradient_views_ = model::bind_tensors<G>(placement_, unit_gradients_);
  if (sharding_ == plan::Sharding::kParameters) {
    hooks_.before = [this](std::int64_t unit) { before(unit); };
  }
  hooks_.is_first_backward = [this](std::int64_t unit) { return is_first_backward(unit); };
  hooks_.after_backward = [this](std::int64_t unit) { after_backward(unit); };
  find_cleared();
}

/// The views of a unit in the resident buffers, in which element `begin` of the layout, were it
/// there, would be the first.
template <class T>
void ParameterStore<T>::make_unit(std::int64_t unit, std::int64_t begin) {
  const Range range = unit_range(*layout_, unit);
  const auto seen = [&](const auto& data_N) {
    using U = typename std::decay_t<decltype(data_N)>::value_type;
    return DeviceView<U, 1>(data_N.data() + (range.begin - begin), range.size());
  };
  const auto index = static_cast<std::size_t>(unit);
  unit_weights_[index] = {layout_, seen(resident_weights_N_), range};
  unit_gradients_[index] = {layout_, seen(resident_gradients_N_), range};
}

template <class T>
void ParameterStore<T>::make_buffers() {
  const std::int64_t units = units_of(placement_.whole);
  unit_weights_.resize(static_cast<std::size_t>(units));
  unit_gradients_.resize(static_cast<std::size_t>(units));
  const std::string weights = "pleat::train::weights";
  const std::string gradients = "pleat::train::gradients";
  if (kHasMasters) masters_N_ = make_buffer<M>("pleat::train::masters", shard_size_);
  if (sharding_ == plan::Sharding::kOptimizer) {
    resident_weights_N_ = make_buffer<T>(weights, layout_->size());
    resident_gradients_N_ = make_buffer<G>(gradients, layout_->size());
    for (std::int64_t unit = 0; unit < units; ++unit) make_unit(unit, 0);
    return;
  }
  // Embedding, head, and the layers one after the other: three places.
  const std::int64_t embedding = unit_range(*layout_, model::embedding_unit()).size();
  const std::int64_t outside =
      embedding + unit_range(*layout_, model::head_unit(placement_.whole)).size();
  std::int64_t layer = 0;
  for (std::int64_t unit = 0; unit < units; ++unit) {
    const Range range = unit_range(*layout_, unit);
    if (is_layer(placement_.whole, unit)) layer = std::max(layer, range.size());
  }
  resident_weights_N_ = make_buffer<T>(weights, outside + layer);
  resident_gradients_N_ = make_buffer<G>(gradients, outside + layer);
  for (std::int64_t unit = 0; unit < units; ++unit) {
    std::int64_t place = unit == model::embedding_unit() ? 0 : embedding;
    if (is_layer(placement_.whole, unit)) place = outside;
    make_unit(unit, unit_range(*layout_, unit).begin - place);
  }
  make_layer_shards();
}

/// With sharded parameters: what is kept of the layers, whose shards follow each other.
template <class T>
void ParameterStore<T>::make_layer_shards() {
  std::int64_t all = 0;
  std::int64_t largest = 0;
  const auto& buckets = layout_->buckets();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (!is_layer(placement_.whole, buckets[b].unit)) continue;
    if (all == 0) first_layer_shard_ = shard_begin_[b];
    all += buckets[b].shard_size();
    largest = std::max(largest, buckets[b].shard_size());
  }
  weight_shards_N_ = make_buffer<T>("pleat::train::weight_shards", all);
  gradient_shards_N_ = make_buffer<G>("pleat::train::gradient_shards", all);
  incoming_N_ = make_buffer<G>("pleat::train::incoming", largest);
}

template <class T>
bool ParameterStore<T>::is_sharded(std::int64_t unit) const {
  return sharding_ == plan::Sharding::kParameters && is_layer(placement_.whole, unit);
}

template <class T>
comm::Communicator& ParameterStore<T>::group(tensor::Group group) const {
  switch (group) {
    case tensor::Group::kDense: return grid_.group(GroupName::kDataContext);
    case tensor::Group::kReplicated: return grid_.group(GroupName::kDataContextTensor);
    case tensor::Group::kExpert: return grid_.group(GroupName::kExpertData);
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown parameter group");
}

template <class T>
Range ParameterStore<T>::shard_range(std::size_t bucket) const {
  const Bucket& b = layout_->buckets()[bucket];
  return b.shard(placement_.shard_index.of(b.group));
}

/// A bucket's shard among those of sharded parameters, or in the buffer of its unit.
template <class T>
template <class U>
DeviceView<U, 1> ParameterStore<T>::shard(
    std::size_t bucket, const DeviceView<U, 1>& shards_N,
    const std::vector<tensor::FlatTensors<U>>& units) const {
  const Bucket& b = layout_->buckets()[bucket];
  if (is_sharded(b.unit)) {
    return DeviceView<U, 1>(shards_N.data() + (shard_begin_[bucket] - first_layer_shard_),
                            b.shard_size());
  }
  return units[static_cast<std::size_t>(b.unit)].part(shard_range(bucket));
}

template <class T>
DeviceView<T, 1> ParameterStore<T>::model_shard(std::size_t bucket) const {
  return shard<T>(bucket, weight_shards_N_, unit_weights_);
}

template <class T>
DeviceView<Master<T>, 1> ParameterStore<T>::weight_shard(std::size_t bucket) const {
  if constexpr (kHasMasters) {
    return DeviceView<M, 1>(masters_N_.data() + shard_begin_[bucket],
                            layout_->buckets()[bucket].shard_size());
  } else {
    return model_shard(bucket);
  }
}

template <class T>
DeviceView<Gradient<T>, 1> ParameterStore<T>::gradient_shard(std::size_t bucket) const {
  return shard<G>(bucket, gradient_shards_N_, unit_gradients_);
}

template <class T>
std::vector<ShardPiece> ParameterStore<T>::shard_pieces() const {
  std::vector<ShardPiece> pieces;
  const auto& buckets = layout_->buckets();
  for (const tensor::ParameterSpec& parameter : layout_->parameters()) {
    const Range own{parameter.offset, parameter.offset + parameter.local_count()};
    const auto first = std::upper_bound(
        buckets.begin(), buckets.end(), own.begin,
        [](std::int64_t offset, const Bucket& candidate) { return offset < candidate.range.end; });
    for (auto bucket = first; bucket != buckets.end() && bucket->range.begin < own.end; ++bucket) {
      const auto b = static_cast<std::size_t>(bucket - buckets.begin());
      const Range shard = shard_range(b);
      const Range common = tensor::intersection(shard, own);
      if (common.size() <= 0) continue;
      pieces.push_back({.parameter = &parameter,
                        .in_box = {common.begin - own.begin, common.end - own.begin},
                        .bucket = b,
                        .in_shard = common.begin - shard.begin});
    }
  }
  return pieces;
}

/// What lies between the overwritten gradients, padding included. With sharded parameters all
/// of it: layers of different kinds share one place.
template <class T>
void ParameterStore<T>::find_cleared() {
  const auto all = static_cast<std::int64_t>(resident_gradients_N_.size());
  if (sharding_ == plan::Sharding::kParameters) {
    cleared_ = {{0, all}};
    return;
  }
  std::vector<Range> overwritten;
  for (const tensor::ParameterSpec& parameter : layout_->parameters()) {
    if (!parameter.overwritten) continue;
    overwritten.push_back({parameter.offset, parameter.offset + parameter.local_count()});
  }
  std::sort(overwritten.begin(), overwritten.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::int64_t begin = 0;
  for (const Range& range : overwritten) {
    if (range.begin > begin) cleared_.push_back({begin, range.begin});
    begin = range.end;
  }
  if (all > begin) cleared_.push_back({begin, all});
}

template <class T>
void ParameterStore<T>::begin_step(const ExecSpace& exec, std::int64_t backwards) {
  for (const Range& range : cleared_) {
    fill_tensor(exec,
                DeviceView<G, 1>(resident_gradients_N_.data() + range.begin, range.size()),
                G(0));
  }
  if (gradient_shards_N_.size() > 0) fill_tensor(exec, gradient_shards_N_, G(0));
  backwards_ = backwards;
  std::fill(backwards_left_.begin(), backwards_left_.end(), backwards);
}

/// A sharded layer finds its gradients zero before each pass.
template <class T>
bool ParameterStore<T>::is_first_backward(std::int64_t unit) const {
  return is_sharded(unit) || backwards_left_[static_cast<std::size_t>(unit)] == backwards_;
}

/// Gathers a sharded layer into the working buffer.
template <class T>
void ParameterStore<T>::before(std::int64_t unit) {
  if (!is_sharded(unit) || unit == working_unit_) return;
  const auto& buckets = layout_->buckets();
  const tensor::FlatTensors<T>& weights = unit_weights_[static_cast<std::size_t>(unit)];
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].unit != unit) continue;
    group(buckets[b].group).all_gather(model_shard(b), weights.part(buckets[b].range));
  }
  working_unit_ = unit;
}

template <class T>
void ParameterStore<T>::after_backward(std::int64_t unit) {
  std::int64_t& left = backwards_left_[static_cast<std::size_t>(unit)];
  --left;
  const bool sharded = is_sharded(unit);
  if (left > 0 && !sharded) return;
  // Both halves of a tied matrix must be done; finish_reduction() sums it.
  if (unit == model::embedding_unit() && placement_.whole.tied) return;
  sum_kv_copies(unit);
  const auto& buckets = layout_->buckets();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].unit == unit) sharded ? add_reduced(b) : reduce(b);
  }
}

/// Starts the sum of a bucket; each rank's part ends up in its shard.
template <class T>
void ParameterStore<T>::reduce(std::size_t bucket) {
  const Bucket& b = layout_->buckets()[bucket];
  if (b.shards == 1) return;
  // MPI holds a shard of each bucket that it sums, so not all of them may be under way.
  while (!reductions_.empty() && under_way_ + b.shard_size() > most_under_way_) {
    finish_first_reduction();
  }
  const tensor::FlatTensors<G>& gradients = unit_gradients_[static_cast<std::size_t>(b.unit)];
  reductions_.push_back({group(b.group).start_reduce_scatter(gradients.part(b.range),
                                                             gradient_shard(bucket)),
                         b.shard_size()});
  under_way_ += b.shard_size();
}

template <class T>
void ParameterStore<T>::finish_first_reduction() {
  reductions_.front().pending.wait();
  under_way_ -= reductions_.front().elements;
  reductions_.pop_front();
}

/// The gradients of a sharded layer in the working buffer are added to the shard.
template <class T>
void ParameterStore<T>::add_reduced(std::size_t bucket) {
  const Bucket& b = layout_->buckets()[bucket];
  const ExecSpace exec;
  const auto all_N = unit_gradients_[static_cast<std::size_t>(b.unit)].part(b.range);
  const DeviceView<G, 1> incoming_N(incoming_N_.data(), b.shard_size());
  group(b.group).reduce_scatter(all_N, incoming_N);
  const DeviceView<G, 2> sum(gradient_shard(bucket).data(), 1, b.shard_size());
  kernels::add_in_place<G>(exec, DeviceView<G, 2>(incoming_N.data(), 1, b.shard_size()), sum);
  fill_tensor(exec, all_N, G(0));
}

/// Each copy of a key/value head has met other query heads.
template <class T>
void ParameterStore<T>::sum_kv_copies(std::int64_t unit) {
  if (!kv_copies_ || !is_layer(placement_.whole, unit)) return;
  const std::string self =
      "model.layers." + std::to_string(unit - 1) + ".self_attn.";
  const tensor::FlatTensors<G>& gradients = unit_gradients_[static_cast<std::size_t>(unit)];
  for (const char* kind : {"weight", "bias"}) {
    if (!layout_->contains(self + "k_proj." + kind)) continue;
    const tensor::ParameterSpec& k = layout_->at(self + "k_proj." + kind);
    const tensor::ParameterSpec& v = layout_->at(self + "v_proj." + kind);
    kv_copies_->all_reduce(gradients.part({k.offset, v.offset + v.local_count()}),
                           comm::Reduction::kSum);
  }
}

/// The embedding of the first stage and the head of the last are one matrix.
template <class T>
void ParameterStore<T>::sum_tied_embedding() {
  if (!placement_.whole.tied || !(placement_.has_embedding || placement_.has_head)) return;
  const auto& buckets = layout_->buckets();
  const tensor::FlatTensors<G>& gradients = unit_gradients_[model::embedding_unit()];
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].unit != model::embedding_unit()) continue;
    if (tied_) tied_->all_reduce(gradients.part(buckets[b].range), comm::Reduction::kSum);
    reduce(b);
  }
}

template <class T>
void ParameterStore<T>::finish_reduction() {
  sum_tied_embedding();
  while (!reductions_.empty()) finish_first_reduction();
}

template <class T>
void ParameterStore<T>::gather_weights() {
  working_unit_ = -1;
  const auto& buckets = layout_->buckets();
  gathers_.clear();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].shards == 1 || is_sharded(buckets[b].unit)) continue;
    const auto& weights = unit_weights_[static_cast<std::size_t>(buckets[b].unit)];
    gathers_.push_back(group(buckets[b].group)
                           .start_all_gather(model_shard(b), weights.part(buckets[b].range)));
  }
  for (comm::Pending& pending : gathers_) pending.wait();
}

template <class T>
void ParameterStore<T>::publish_weights() {
  if constexpr (kHasMasters) {
    const ExecSpace exec;
    for (std::size_t b = 0; b < layout_->buckets().size(); ++b) {
      kernels::convert<M, T>(exec, weight_shard(b), model_shard(b));
    }
  }
  gather_weights();
}

template <class T>
tensor::FlatTensors<Master<T>> ParameterStore<T>::gathered(
    const std::vector<DeviceView<M, 1>>& shards) {
  tensor::FlatTensors<M> whole(layout_, "pleat::train::whole");
  const auto& buckets = layout_->buckets();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    group(buckets[b].group).all_gather(shards[b], whole.part(buckets[b].range));
  }
  return whole;
}

template <class T>
tensor::FlatTensors<Master<T>> ParameterStore<T>::whole_weights() {
  if constexpr (!kHasMasters) {
    if (sharding_ == plan::Sharding::kOptimizer) {
      return {layout_, resident_weights_N_, {0, layout_->size()}};
    }
  }
  std::vector<DeviceView<M, 1>> shards;
  for (std::size_t b = 0; b < layout_->buckets().size(); ++b) shards.push_back(weight_shard(b));
  return gathered(shards);
}

template <class T>
tensor::FlatTensors<Gradient<T>> ParameterStore<T>::whole_gradients() {
  const bool alone = std::all_of(layout_->buckets().begin(), layout_->buckets().end(),
                                 [](const Bucket& b) { return b.shards == 1; });
  if (alone && sharding_ == plan::Sharding::kOptimizer) {
    return {layout_, resident_gradients_N_, {0, layout_->size()}};
  }
  std::vector<DeviceView<G, 1>> shards;
  for (std::size_t b = 0; b < layout_->buckets().size(); ++b) {
    shards.push_back(gradient_shard(b));
  }
  return gathered(shards);
}

template <class T>
void ParameterStore<T>::set_weights(const tensor::FlatTensors<M>& whole) {
  const auto& buckets = layout_->buckets();
  if constexpr (kHasMasters) {
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      copy_tensor(weight_shard(b), whole.part(shard_range(b)));
    }
    publish_weights();
  } else {
    if (whole.flat().data() == resident_weights_N_.data()) return;
    working_unit_ = -1;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      if (is_sharded(buckets[b].unit)) {
        copy_tensor(weight_shard(b), whole.part(shard_range(b)));
      } else {
        const auto& weights = unit_weights_[static_cast<std::size_t>(buckets[b].unit)];
        copy_tensor(weights.part(buckets[b].range), whole.part(buckets[b].range));
      }
    }
  }
}

template class ParameterStore<float>;
template class ParameterStore<double>;
template class ParameterStore<Bf16>;

}  // namespace pleat::train
