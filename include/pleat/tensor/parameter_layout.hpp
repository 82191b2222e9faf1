// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Where each parameter tensor lies in the flat buffers of weights, gradients and
/// optimizer moments, and how those buffers are cut over ranks.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pleat::tensor {

using Shape = std::vector<std::int64_t>;

std::int64_t element_count(const Shape& shape);

/// \brief How a parameter starts out.
enum class Initialisation { kNormal, kOnes, kZeros };

/// \brief Over which ranks a gradient is summed and optimizer state is split.
enum class Group {
  kDense,       ///< split over tensor ranks: dp*cp
  kReplicated,  ///< whole on every tensor rank, which sees part of the tokens: dp*cp*tp
  kExpert       ///< edp
};

inline constexpr std::size_t kParameterGroups = 3;

/// \brief One tensor of the model as files know it.
struct ParameterSpec {
  std::string name;  ///< Hugging Face path, e.g. "model.layers.0.self_attn.q_proj.weight"
  Shape global_shape;  ///< shape over all ranks, [out, in] for projections
  Group group = Group::kDense;
  Initialisation initialisation = Initialisation::kNormal;

  // This rank's part, a box inside global_shape; equal to it where nothing is split.
  Shape local_shape;
  Shape local_offset;
  /// False for a further copy within the stage's tensor ranks or on another stage: it
  /// takes part in no norm.
  bool counted = true;
  bool written =
      true;  ///< by this rank to files: true on exactly one of the ranks with the box

  /// The first backward pass of a step overwrites its gradient, which nothing need clear.
  bool overwritten = false;

  std::int64_t offset = -1;  ///< first element in the flat buffers, set by the layout
  /// Matrices are decayed; norm weights and biases are not.
  bool decayed() const { return global_shape.size() >= 2; }
  std::int64_t local_count() const { return element_count(local_shape); }
};

/// \brief Elements begin .. end - 1 of a buffer.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// \brief The common part of two ranges; empty ones have end <= begin.
Range intersection(const Range& a, const Range& b);

/// \brief A run of the flat buffer in which every element is treated alike.
struct Segment {
  Range range;
  bool decayed = false;
  bool counted = true;
};

/// \brief What is summed over ranks in one exchange: the parameters of one group in one
/// unit of the model, or a piece of them, padded so that each rank of the group owns an
/// equal part.
struct Bucket {
  std::int64_t unit = 0;
  Group group = Group::kDense;
  Range range;
  std::int64_t shards = 1;
  std::vector<Segment> segments;

  std::int64_t shard_size() const { return range.size() / shards; }
  Range shard(std::int64_t index) const {
    return {range.begin + index * shard_size(), range.begin + (index + 1) * shard_size()};
  }
};

/// \brief Ranks that share the parameters of each group.
struct ShardCounts {
  std::int64_t dense = 1;
  std::int64_t replicated = 1;
  std::int64_t expert = 1;
  std::int64_t of(Group group) const;
};

/// \brief Assigns an offset to every parameter.
///
/// Tensors of one block lie back to back without padding, in the order given, so that
/// kernels see them as one fused matrix: q, k and v as qkv_QD, the gate and up
/// projections of all experts as w13_E2FD. Blocks start on kAlignment elements; the
/// padding stays zero in weights, gradients and moments. Blocks of one unit and group
/// lie together, decayed ones first, and form a bucket, or several where there are many:
/// whoever sums a bucket holds a copy of a shard of it.
class ParameterLayout {
 public:
  static constexpr std::int64_t kAlignment = 64;
  /// Elements of a bucket that one rank owns at most. Large enough for an exchange at
  /// full speed, small beside what a rank holds.
  static constexpr std::int64_t kLargestShard = std::int64_t{1} << 21;

  /// \brief Adds tensors that lie back to back; all of one group and all decayed or none.
  /// Fills in local_shape and local_offset where they are empty.
  /// \param unit  number of the part of the model whose gradients are complete at one
  /// time
  void add_block(std::int64_t unit, std::vector<ParameterSpec> block);
  /// \brief Assigns the offsets; call once, after the last block.
  /// \param largest_shard  a positive multiple of kAlignment
  void finalize(const ShardCounts& shards = {},
                std::int64_t largest_shard = kLargestShard);

  /// \brief In the order in which they were added.
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  /// \brief By unit, then group; they follow each other without gaps.
  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// \brief Elements of a flat buffer, padding included.
  std::int64_t size() const { return size_; }
  /// \brief The parameter of that name; asserts that it exists.
  const ParameterSpec& at(std::string_view name) const;
  bool contains(std::string_view name) const;
  /// \brief Elements over all ranks, without padding.
  std::int64_t global_count() const;

 private:
  struct Block {
    std::int64_t unit = 0;
    Group group = Group::kDense;
    bool decayed = false;
    std::size_t first = 0;
    std::size_t last = 0;  ///< one past
  };
  void place_block(const Block& block, Bucket& bucket);
  void close_buckets(Bucket& whole, std::int64_t largest_shard);

  std::vector<ParameterSpec> parameters_;
  std::vector<Block> blocks_;
  std::unordered_map<std::string, std::size_t> index_;
  std::vector<Bucket> buckets_;
  std::int64_t size_ = 0;
};

}  // namespace pleat::tensor
