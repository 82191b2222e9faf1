// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Causal attention of one sequence as a graph that a library (cuDNN) has planned: all
/// that attention_cudnn.cpp knows of it.
///
/// Free of Kokkos and of the library's headers, which take a compiler half a minute. Where
/// PLEAT_CUDNN_GRAPHS is defined attention_graphs.cpp has it by cuDNN;
/// tests/kernels/stand_in has it by loops on host memory.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace pleat::kernels {

/// \brief Query i sees the keys j <= i; query head h reads key/value head h / (heads /
/// kv_heads). Numbers are bf16, lse fp32. A stride leads from row to row, in elements; the
/// heads of a row lie side by side.
struct GraphShape {
  bool backward = false;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t q_stride = 0;
  std::int64_t kv_stride = 0;
  std::int64_t o_stride = 0;
  std::int64_t lse_stride = 0;  ///< from head to head
  std::int64_t do_stride = 0;   ///< from here on backward only
  std::int64_t dq_stride = 0;
  std::int64_t dkv_stride = 0;
  float scale = 0.0F;
  auto operator<=>(const GraphShape&) const = default;
};

/// \brief First elements. Forward, o and lse are written; backward, they are read.
struct GraphArrays {
  void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *lse = nullptr;
  void *d_o = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

/// \brief A plan for one shape.
class AttentionGraph {
 public:
  virtual ~AttentionGraph() = default;
  virtual std::size_t workspace_bytes() const = 0;
  /// \brief Queues it on the stream of its AttentionGraphs; the host does not wait.
  /// \return what failed; empty where nothing did
  virtual std::string run(const GraphArrays& arrays, void* workspace) const = 0;
};

/// \brief A plan, or why there is none.
struct AttentionPlan {
  std::unique_ptr<AttentionGraph> graph;
  std::string refusal;
};

/// \brief The library on one stream.
class AttentionGraphs {
 public:
  virtual ~AttentionGraphs() = default;
  virtual AttentionPlan plan(const GraphShape& shape) = 0;
};

/// \return null where the library is not on this machine or cannot use its GPU
std::unique_ptr<AttentionGraphs> open_attention_graphs(void* stream);

/// \brief "cuDNN 9.28.1"; empty where it is not on this machine.
std::string attention_graph_library();

/// \brief Plans the shape for a GPU that is not here, as far as that goes without a driver:
/// the library chooses engines and says whether they support the graph.
/// \param device  its properties as the library writes them (JSON)
/// \param compute_capability  90 for Hopper
/// \return why it refuses; empty where it does not
std::string refusal_without_device(const GraphShape& shape, const std::string& device,
                                   int compute_capability);

}  // namespace pleat::kernels
