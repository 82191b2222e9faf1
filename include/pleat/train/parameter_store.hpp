// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A rank's weights and gradients, and their exchange with the ranks that share them.
///
/// Each bucket of the layout is cut into equal shards over the ranks of its group. Gradients
/// are reduced so that each rank holds the sum of its shard; the optimizer updates that shard;
/// weights are gathered again (ZeRO-1, Rajbhandari et al., arXiv 1910.02054). With
/// Sharding::kParameters the layers' weights and gradients are kept as shards as well and one
/// layer at a time is gathered (ZeRO-3).
///
/// Where the model computes in a type T that is narrower than the one it is trained in, the
/// optimizer's weights are masters beside those of the model, which each update also writes,
/// rounded, before they are gathered. Gradients are summed in Gradient<T>.

#include <cstdint>
#include <deque>
#include <memory>
#include <type_traits>
#include <vector>

#include "pleat/comm/grid.hpp"
#include "pleat/model/parameters.hpp"
#include "pleat/model/placement.hpp"
#include "pleat/model/transformer.hpp"
#include "pleat/plan/mapping.hpp"
#include "pleat/tensor/flat_tensors.hpp"

namespace pleat::train {

/// \brief A run of a rank's shards, and which elements of a parameter they are.
struct ShardPiece {
  const tensor::ParameterSpec* parameter = nullptr;  ///< of the store's layout
  tensor::Range in_box;      ///< in the row-major order of the rank's box of it
  std::size_t bucket = 0;
  std::int64_t in_shard = 0;  ///< where they begin in the bucket's shard
};

template <class T>
class ParameterStore {
 public:
  using M = Master<T>;
  using G = Gradient<T>;
  /// Whether the optimizer's weights are not those that the model computes with.
  static constexpr bool kHasMasters = !std::is_same_v<M, T>;

  /// \brief Weights and gradients, zero. Collective over the grid, as is every function but the
  /// accessors. \param grid  must outlive the object
  ParameterStore(const model::Placement& placement, const comm::Grid& grid,
                 plan::Sharding sharding);

  const tensor::ParameterLayout& layout() const { return *layout_; }
  std::shared_ptr<const tensor::ParameterLayout> shared_layout() const { return layout_; }
  const model::ModelTensors<T>& weights() const { return weight_views_; }
  const model::ModelTensors<G>& gradients() const { return gradient_views_; }

  /// \brief Elements of this rank's shards of all buckets, one after the other.
  std::int64_t shard_size() const { return shard_size_; }
  /// \brief This rank's shard of a bucket: its range in the layout ...
  tensor::Range shard_range(std::size_t bucket) const;
  /// \brief ... its place among the shards ...
  std::int64_t shard_begin(std::size_t bucket) const { return shard_begin_[bucket]; }
  /// \brief ... and its weights, as the optimizer moves them, and reduced gradients.
  DeviceView<M, 1> weight_shard(std::size_t bucket) const;
  /// What the model computes with: with kHasMasters, weight_shard() rounded.
  DeviceView<T, 1> model_shard(std::size_t bucket) const;
  DeviceView<G, 1> gradient_shard(std::size_t bucket) const;

  /// \brief All elements of this rank's shards, padding left out. Over all ranks, those of
  /// `counted` parameters are each element of the model once.
  std::vector<ShardPiece> shard_pieces() const;

  /// \brief Before `backwards` backward passes of each unit. Gradients become zero, but for
  /// those that the first pass of their unit overwrites. Reduction of a unit starts when its
  /// last pass is done, and goes on during those of other units.
  void begin_step(const ExecSpace& exec, std::int64_t backwards);
  /// \brief What the model calls around each unit.
  const model::UnitHooks& hooks() const { return hooks_; }
  /// \brief Completes the reductions: what ExecSpace is given next finds the sums.
  void finish_reduction();
  /// \brief The model's weights from model_shard() of all ranks.
  void gather_weights();
  /// \brief The same from weight_shard(), which was set from outside.
  void publish_weights();

  /// \brief Whole tensors of this rank, for files: copies, or the buffer itself.
  tensor::FlatTensors<M> whole_weights();
  tensor::FlatTensors<G> whole_gradients();
  /// \brief Takes over weights.
  void set_weights(const tensor::FlatTensors<M>& whole);

 private:
  bool is_sharded(std::int64_t unit) const;
  comm::Communicator& group(tensor::Group group) const;
  template <class U>
  DeviceView<U, 1> shard(std::size_t bucket, const DeviceView<U, 1>& shards_N,
                         const std::vector<tensor::FlatTensors<U>>& units) const;
  void make_buffers();
  void make_layer_shards();
  void make_unit(std::int64_t unit, std::int64_t begin);
  void find_cleared();
  bool is_first_backward(std::int64_t unit) const;
  void before(std::int64_t unit);
  void after_backward(std::int64_t unit);
  void reduce(std::size_t bucket);
  void finish_first_reduction();
  void add_reduced(std::size_t bucket);
  void sum_kv_copies(std::int64_t unit);
  void sum_tied_embedding();
  tensor::FlatTensors<M> gathered(const std::vector<DeviceView<M, 1>>& shards);

  model::Placement placement_;
  const comm::Grid& grid_;
  plan::Sharding sharding_;
  std::shared_ptr<const tensor::ParameterLayout> layout_;
  std::vector<std::int64_t> shard_begin_;
  std::int64_t shard_size_ = 0;
  std::unique_ptr<comm::Communicator> kv_copies_;  ///< tensor ranks with the same kv heads
  std::unique_ptr<comm::Communicator> tied_;       ///< first and last stage

  /// What the model computes with. Without sharded parameters all units lie in one buffer;
  /// with them all layers share one working buffer, in which `working_unit_` is present.
  std::vector<tensor::FlatTensors<T>> unit_weights_;
  std::vector<tensor::FlatTensors<G>> unit_gradients_;
  DeviceView<T, 1> resident_weights_N_;
  DeviceView<G, 1> resident_gradients_N_;
  std::int64_t working_unit_ = -1;
  DeviceView<T, 1> weight_shards_N_;  ///< of the layers, with sharded parameters
  DeviceView<G, 1> gradient_shards_N_;
  std::int64_t first_layer_shard_ = 0;  ///< where they begin among all shards
  DeviceView<M, 1> masters_N_;  ///< of all shards, with kHasMasters
  DeviceView<G, 1> incoming_N_;  ///< one bucket's reduced shard, before it is added

  model::ModelTensors<T> weight_views_;
  model::ModelTensors<G> gradient_views_;
  model::UnitHooks hooks_;
  std::int64_t backwards_ = 0;                ///< of each unit in a step
  std::vector<std::int64_t> backwards_left_;  ///< by unit
  std::vector<tensor::Range> cleared_;  ///< of the resident gradients, at the start of a step

  struct Reduction {
    comm::Pending pending;
    std::int64_t elements;  ///< of the shard
  };
  std::deque<Reduction> reductions_;
  std::vector<comm::Pending> gathers_;  // of gather_weights(), whose memory is kept
  std::int64_t under_way_ = 0;       ///< elements of all of them
  std::int64_t most_under_way_ = 0;  ///< unless a single one has more
};

}  // namespace pleat::train
