// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Where each parameter tensor lies in the flat buffers of weights, gradients and
/// optimizer moments.

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
enum class Group { kDense, kExpert };

/// \brief One tensor of the model as files know it.
struct ParameterSpec {
  std::string name;       ///< Hugging Face path, e.g. "model.layers.0.self_attn.q_proj.weight"
  Shape global_shape;     ///< shape over all ranks, [out, in] for projections
  Group group = Group::kDense;
  Initialisation initialisation = Initialisation::kNormal;

  // This rank's part, a box inside global_shape; equal to it where nothing is split.
  Shape local_shape;
  Shape local_offset;

  std::int64_t offset = -1;  ///< first element in the flat buffers, set by the layout
  /// Matrices are decayed; norm weights and biases are not.
  bool decayed() const { return global_shape.size() >= 2; }
  std::int64_t local_count() const { return element_count(local_shape); }
};

/// \brief A run of the flat buffer in which every element is treated alike.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Group group = Group::kDense;
  bool decayed = false;
};

/// \brief Assigns an offset to every parameter.
///
/// Tensors of one block lie back to back without padding, in the order given, so that kernels
/// see them as one fused matrix: q, k and v as qkv_QD, the gate and up projections of all
/// experts as w13_E2FD. Blocks start on kAlignment elements; the padding stays zero in weights,
/// gradients and moments. Blocks are grouped into at most four segments: {dense, expert} x
/// {decayed, not decayed}.
class ParameterLayout {
 public:
  static constexpr std::int64_t kAlignment = 64;

  /// \brief Adds tensors that lie back to back; all of one group and all decayed or none.
  /// Fills in local_shape and local_offset where they are empty.
  void add_block(std::vector<ParameterSpec> block);
  /// \brief Assigns the offsets; call once, after the last block.
  void finalize();

  /// \brief In the order in which they were added.
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  const std::vector<Segment>& segments() const { return segments_; }
  /// \brief Elements of a flat buffer, padding included.
  std::int64_t size() const { return size_; }
  /// \brief The parameter of that name; asserts that it exists.
  const ParameterSpec& at(std::string_view name) const;
  bool contains(std::string_view name) const;
  /// \brief Elements over all ranks, without padding.
  std::int64_t global_count() const;

 private:
  std::vector<ParameterSpec> parameters_;
  std::vector<std::size_t> block_begin_;
  std::unordered_map<std::string, std::size_t> index_;
  std::vector<Segment> segments_;
  std::int64_t size_ = 0;
};

}  // namespace pleat::tensor
