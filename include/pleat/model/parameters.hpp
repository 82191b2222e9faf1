// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The parameters of a model: their names in files, and the fused views that the
/// layers compute with.
///
/// Legend: V vocabulary, D hidden, Q = (heads + 2 kv_heads) head_dim, O = heads head_dim,
/// d head_dim, E experts, F ffn of one expert (or of the dense layer), 2F gate rows, then up rows;
/// all but D, d and the E of the router are this rank's share.

#include <cstdint>
#include <memory>
#include <vector>

#include "pleat/base/types.hpp"
#include "pleat/model/placement.hpp"
#include "pleat/plan/model_config.hpp"
#include "pleat/tensor/flat_tensors.hpp"
#include "pleat/tensor/parameter_layout.hpp"

namespace pleat::model {

/// \brief The units of the layout's buckets: the embedding, layer l, final norm and head.
inline std::int64_t embedding_unit() { return 0; }
inline std::int64_t layer_unit(std::int64_t layer) { return layer + 1; }
inline std::int64_t head_unit(const plan::ModelConfig& config) { return config.layers + 1; }

/// \brief Every parameter of this rank by its Hugging Face name and shape, with the tensors that
/// one GEMM reads lying back to back. Tied models have no head of their own.
std::shared_ptr<const tensor::ParameterLayout> parameter_layout(const Placement& placement);
/// \brief Of the whole model: what files hold.
std::shared_ptr<const tensor::ParameterLayout> parameter_layout(const plan::ModelConfig& config);

/// \brief A SwiGLU of its own: a dense layer or the shared expert.
template <class T>
struct FeedForwardTensors {
  DeviceView<T, 2> w13_2FD;
  DeviceView<T, 2> w2_DF;
};

/// \brief Weights, or gradients, of one block. What the model does not have stays empty.
template <class T>
struct BlockTensors {
  DeviceView<T, 1> attention_norm_D;
  DeviceView<T, 2> qkv_QD;
  DeviceView<T, 1> qkv_bias_Q;
  DeviceView<T, 1> q_norm_d;
  DeviceView<T, 1> k_norm_d;
  DeviceView<T, 2> out_DO;
  DeviceView<T, 1> ffn_norm_D;
  FeedForwardTensors<T> dense;
  DeviceView<T, 2> router_ED;
  DeviceView<T, 1> router_bias_E;  ///< moved by the balancing rule, not by a gradient
  DeviceView<T, 3> w13_E2FD;
  DeviceView<T, 3> w2_EDF;
  FeedForwardTensors<T> shared;
  DeviceView<T, 2> shared_gate_1D;
};

template <class T>
struct ModelTensors {
  DeviceView<T, 2> embedding_VD;
  std::vector<BlockTensors<T>> blocks;  ///< by layer of the whole model; empty: of other stages
  DeviceView<T, 1> final_norm_D;
  DeviceView<T, 2> head_VD;  ///< the embedding itself where they are tied
};

/// \brief The fused views of a flat buffer.
template <class T>
ModelTensors<T> bind_tensors(const Placement& placement, const tensor::FlatTensors<T>& tensors);
/// \brief The same where units lie in buffers of their own.
/// \param by_unit  for every unit of the whole model; those that this rank lacks are not read
template <class T>
ModelTensors<T> bind_tensors(const Placement& placement,
                             const std::vector<tensor::FlatTensors<T>>& by_unit);

/// \brief Random weights keyed by (seed, parameter name, global index): the same on every
/// mapping. Matrices are normal with standard deviation config.init_std, norms 1, biases 0.
template <class T>
void initialise(const ExecSpace& exec, const plan::ModelConfig& config, std::uint64_t seed,
                const tensor::FlatTensors<T>& weights);
/// \brief The same for elements first, first + 1, ... of one parameter's box, in row-major order.
/// \param w_N  as many as are wanted
template <class T>
void initialise_piece(const ExecSpace& exec, const plan::ModelConfig& config,
                      std::uint64_t seed, const tensor::ParameterSpec& parameter,
                      std::int64_t first, const DeviceView<T, 1>& w_N);

}  // namespace pleat::model
