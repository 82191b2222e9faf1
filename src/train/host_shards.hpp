// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A rank's shards of weights and moments on their way from and to files.

#include <span>
#include <vector>

#include "pleat/base/copy.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/train/engine.hpp"

namespace pleat::train {

/// A rank's shards of one group as the host sees them: on a host their own memory, on a device
/// a copy.
template <class T>
class HostShards {
 public:
  using M = Master<T>;
  using Host = Kokkos::View<M*, Kokkos::LayoutRight, Kokkos::HostSpace>;

  HostShards(io::TensorGroup group, Engine<T>& engine, bool copy) : group_(group), engine_(engine) {
    const std::size_t buckets = engine.store().layout().buckets().size();
    for (std::size_t b = 0; b < buckets; ++b) {
      const DeviceView<M, 1> shard_N = device(b);
      buckets_.push_back(
          copy ? Host(host_copy(shard_N)) : Host(host_mirror(shard_N)));
    }
  }

  std::span<M> piece(const ShardPiece& piece) const {
    return {buckets_[piece.bucket].data() + piece.in_shard,
            static_cast<std::size_t>(piece.in_box.size())};
  }

  void copy_to_device() const {
    for (std::size_t b = 0; b < buckets_.size(); ++b) copy_tensor(device(b), buckets_[b]);
  }

 private:
  DeviceView<M, 1> device(std::size_t bucket) const {
    const ParameterStore<T>& store = engine_.store();
    if (group_ == io::TensorGroup::kParameters) return store.weight_shard(bucket);
    const Optimizer<T>& optimizer = engine_.optimizer();
    const DeviceView<M, 1>& moment_N = group_ == io::TensorGroup::kFirstMoment
                                           ? optimizer.first_moment()
                                           : optimizer.second_moment();
    return DeviceView<M, 1>(moment_N.data() + store.shard_begin(bucket),
                            store.layout().buckets()[bucket].shard_size());
  }

  io::TensorGroup group_;
  Engine<T>& engine_;
  std::vector<Host> buckets_;
};

/// \brief Loads the shards of some groups and gathers the weights. Collective over the grid.
/// \throws InputError as CheckpointLoader::read()
template <class T>
void read_shards(io::CheckpointLoader& loader, std::span<const io::TensorGroup> groups,
                 Engine<T>& engine) {
  const std::vector<ShardPiece> pieces = engine.store().shard_pieces();
  std::vector<HostShards<T>> shards;
  for (const io::TensorGroup group : groups) {
    const HostShards<T>& host = shards.emplace_back(group, engine, false);
    for (const ShardPiece& piece : pieces) {
      loader.add<Master<T>>(group, *piece.parameter, piece.in_box, host.piece(piece),
                    piece.parameter->counted);
    }
  }
  loader.read();
  for (const HostShards<T>& group : shards) group.copy_to_device();
  engine.store().publish_weights();
}

}  // namespace pleat::train
