// SPDX-License-Identifier: Apache-2.0
//
// Which attention goes to cuDNN, sequence by sequence, and whether its results are believed.
//
// Legend: as attention.hpp.
#include "attention_cudnn.hpp"

#if defined(PLEAT_CUDNN_ATTENTION)

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <Kokkos_Profiling_ScopedRegion.hpp>

#include "attention_check.hpp"
#include "attention_graphs.hpp"
#include "by_stream.hpp"
#include "pleat/base/environment.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/processor.hpp"
#include "pleat/base/warning.hpp"

namespace pleat::kernels {
namespace {

/// Rows of cuDNN's tiles. Sequences that end within a tile are left to the products: several
/// versions of cuDNN had gradients of such tails wrong on Hopper.
constexpr std::int64_t kTile = 128;
/// Loads of a row are as wide.
constexpr std::int64_t kAlignment = 16;
/// Of the GPU's memory, at most so little goes to a plan's workspace. On Hopper the backward
/// pass takes a matrix of sequence x sequence for each head: 1.5 GiB for 48 heads at 4,096,
/// of 2.5 GiB on an H100. Total memory, not what is free: that would differ from run to run.
constexpr std::int64_t kWorkspaceShare = 32;

bool is_taken(const AttentionShape& shape) {
  return shape.batch > 0 && shape.queries > 0 && shape.queries % kTile == 0 &&
         shape.queries == shape.keys && shape.diagonal == 0 && shape.head_dim % 8 == 0 &&
         shape.head_dim <= 128;
}

template <class View>
bool is_aligned(const View& rows, std::int64_t column = 0) {
  const auto bytes = static_cast<std::int64_t>(sizeof(Bf16));
  return (reinterpret_cast<std::uintptr_t>(rows.data() + column) % kAlignment == 0) &&
         static_cast<std::int64_t>(rows.stride(0)) * bytes % kAlignment == 0;
}

template <class View>
bool are_aligned(const AttentionShape& shape, const View& kv_UR) {
  return is_aligned(kv_UR, shape.k_column) && is_aligned(kv_UR, shape.v_column);
}

/// Where row `row` begins; cuDNN's arrays have no const.
template <class View>
void* row_of(const View& rows, std::int64_t row, std::int64_t column = 0) {
  auto* const first = rows.data() + row * static_cast<std::int64_t>(rows.stride(0)) + column;
  return const_cast<void*>(static_cast<const void*>(first));
}

template <class View>
void* statistic_of(const View& values_HT, std::int64_t row) {
  return const_cast<void*>(static_cast<const void*>(values_HT.data() + row));
}

template <class View>
std::int64_t stride_of(const View& rows) {
  return static_cast<std::int64_t>(rows.stride(0));
}

/// "attention backward with 48/8 heads of 128 over 4096 tokens"
std::string name_of(const GraphShape& x) {
  return fmt::format("attention {} with {}/{} heads of {} over {} tokens",
                     x.backward ? "backward" : "forward", x.heads, x.kv_heads, x.head_dim,
                     x.sequence);
}

void warn_of_products(Concerns whom, const GraphShape& shape, const std::string& reason) {
  warn(whom, fmt::format("{} is not used for {}: {}; matrix products form it",
                         attention_graph_library(), name_of(shape), reason));
}

/// \brief The library, its plans and its memory on one stream.
class Engine {
 public:
  explicit Engine(const ExecSpace& exec)
      : graphs_(open_attention_graphs(gpu::stream_of(exec))),
        most_workspace_(this_processor().bytes / kWorkspaceShare) {}

  bool has_library() const { return graphs_ != nullptr; }
  /// \return null where the library does not do this shape, or wants too much memory for it,
  /// which is told when it is first asked for
  const AttentionGraph* graph(const GraphShape& shape);
  /// \return what failed; empty where nothing did
  /// \throws InternalError PL0816 where there is no memory
  std::string run(const ExecSpace& exec, const GraphShape& shape,
                  const AttentionGraph& graph, const GraphArrays& arrays) {
    reserve(exec, shape, graph.workspace_bytes());
    return graph.run(arrays, workspace_.data());
  }
  /// \brief The next run takes a workspace anew.
  void give_back_workspace(const ExecSpace& exec) {
    exec.fence("pleat::kernels::attention: a workspace is given back");
    workspace_ = {};
  }

 private:
  void reserve(const ExecSpace& exec, const GraphShape& shape, std::size_t bytes);

  std::unique_ptr<AttentionGraphs> graphs_;
  std::int64_t most_workspace_;
  std::map<GraphShape, std::unique_ptr<AttentionGraph>> known_;
  DeviceView<std::byte, 1> workspace_;  ///< of one graph after the other
};

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

const AttentionGraph* Engine::graph(const GraphShape& shape) {
  const auto known = known_.find(shape);
  if (known != known_.end()) return known->second.get();
  auto graph = graphs_->plan(shape);
  const auto bytes = graph ? static_cast<std::int64_t>(graph->workspace_bytes()) : 0;
  if (!graph) {
    warn_of_products(Concerns::kEveryRank, shape, "it has no plan for that");
  } else if (bytes > most_workspace_) {
    graph.reset();
    warn_of_products(
        Concerns::kEveryRank, shape,
        fmt::format("it wants {:.1f} GiB of workspace, more than {:.1f} GiB, 1/{} of the "
                    "GPU's memory",
                    bytes / kGiB, most_workspace_ / kGiB, kWorkspaceShare));
  }
  return known_.emplace(shape, std::move(graph)).first->second.get();
}

/// The old workspace goes before the new one comes: there may not be room for both. To go on
/// by products where there is none would give other bits whenever memory is short.
void Engine::reserve(const ExecSpace& exec, const GraphShape& shape, std::size_t bytes) {
  if (bytes <= workspace_.size()) return;
  give_back_workspace(exec);
  try {
    workspace_ = DeviceView<std::byte, 1>(
        Kokkos::view_alloc(Kokkos::WithoutInitializing, "pleat::kernels::attention"), bytes);
  } catch (const std::exception&) {  // Kokkos says it with more than one type
    PLEAT_FAIL(InternalError, "PL0816",
               "no memory for the workspace of {}, {:.2f} GiB in {}\n"
               "HINT: lower batch.micro, set precision.recompute, or take more ranks; "
               "with PLEAT_ATTENTION=products attention takes no such workspace, and gives "
               "other bits.",
               attention_graph_library(), static_cast<double>(bytes) / kGiB,
               name_of(shape));
  }
}

/// \brief Whether cuDNN agrees with the products about a shape like this; asked once.
bool is_believed(const ExecSpace& exec, Engine& engine, const GraphShape& shape) {
  static std::mutex mutex;
  static std::map<CheckedCase, bool> verdicts;
  const std::lock_guard lock(mutex);
  const CheckedCase checked = checked_case(shape);
  const auto known = verdicts.find(checked);
  if (known != verdicts.end()) return known->second;
  const std::string finding = check_attention(
      exec, checked, [&](const GraphShape& sample, const GraphArrays& arrays) {
        const AttentionGraph* const graph = engine.graph(sample);
        if (graph == nullptr) return std::string("it refuses the problem of the check");
        const std::string failure = engine.run(exec, sample, *graph, arrays);
        return failure.empty() ? "" : "it failed when it was checked: " + failure;
      });
  if (!finding.empty()) {
    engine.give_back_workspace(exec);
    warn_of_products(Concerns::kThisRank, shape, finding);
  }
  return verdicts.emplace(checked, finding.empty()).first->second;
}

/// Whether the products form all attention, as the environment wishes or a test.
std::atomic<bool>& by_products() {
  static std::atomic<bool> value = is_wished("PLEAT_ATTENTION", "products");
  return value;
}

/// For Kokkos Tools, as the products' (gemm_cublaslt.cpp).
std::string region_name(const AttentionShape& shape, bool backward) {
  const double product = static_cast<double>(shape.batch * shape.heads * shape.head_dim) *
                         static_cast<double>(shape.queries) *
                         static_cast<double>(shape.queries + 1);
  return fmt::format("pleat::kernels::attention cuDNN {}, {}/{} heads of {} flop={:.0f}",
                     backward ? "backward" : "forward", shape.heads, shape.kv_heads,
                     shape.head_dim, (backward ? 5.0 : 2.0) * product);
}

/// Runs the graph of one sequence for each of them. \param arrays_of  (query row, key row)
template <class ArraysOf>
bool run_sequences(const ExecSpace& exec, const AttentionShape& shape,
                   const GraphShape& one, const ArraysOf& arrays_of) {
  Engine& engine = object_by_stream<Engine>(exec);
  if (by_products() || !engine.has_library()) return false;
  const AttentionGraph* const graph = engine.graph(one);
  if (graph == nullptr || !is_believed(exec, engine, one)) return false;
  std::optional<Kokkos::Profiling::ScopedRegion> region;
  if (Kokkos::Profiling::profileLibraryLoaded()) {
    region.emplace(region_name(shape, one.backward));
  }
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const std::string failure =
        engine.run(exec, one, *graph,
                   arrays_of(shape.first_query + b * shape.query_stride,
                             shape.first_key + b * shape.key_stride));
    PLEAT_REQUIRE(failure.empty(), InternalError, "PL0815",
                  "cuDNN failed in {}: {}\nHINT: with PLEAT_ATTENTION=products matrix "
                  "products form it.",
                  name_of(one), failure);
  }
  return true;
}

GraphShape forward_shape(const AttentionShape& shape, float scale,
                         const DeviceView<const Bf16, 2>& q_TQ,
                         const DeviceView<const Bf16, 2>& kv_UR,
                         const DeviceView<const Bf16, 2>& o_TO,
                         const DeviceView<const float, 2>& lse_HT) {
  return {.sequence = shape.queries,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .q_stride = stride_of(q_TQ),
          .kv_stride = stride_of(kv_UR),
          .o_stride = stride_of(o_TO),
          .lse_stride = stride_of(lse_HT),
          .scale = scale};
}

/// Of the sequence whose queries begin at row t and keys at row u.
GraphArrays forward_arrays(const AttentionShape& shape, std::int64_t t, std::int64_t u,
                           const DeviceView<const Bf16, 2>& q_TQ,
                           const DeviceView<const Bf16, 2>& kv_UR,
                           const DeviceView<const Bf16, 2>& o_TO,
                           const DeviceView<const float, 2>& lse_HT) {
  return {.q = row_of(q_TQ, t),
          .k = row_of(kv_UR, u, shape.k_column),
          .v = row_of(kv_UR, u, shape.v_column),
          .o = row_of(o_TO, t),
          .lse = statistic_of(lse_HT, t)};
}

}  // namespace

bool cudnn_attention_forward(const ExecSpace& exec, const AttentionShape& shape,
                             float scale, const DeviceView<const Bf16, 2>& q_TQ,
                             const DeviceView<const Bf16, 2>& kv_UR,
                             const DeviceView<Bf16, 2>& o_TO,
                             const DeviceView<float, 2>& lse_HT) {
  if (!is_taken(shape) || !is_aligned(q_TQ) || !are_aligned(shape, kv_UR) ||
      !is_aligned(o_TO)) {
    return false;
  }
  const GraphShape one = forward_shape(shape, scale, q_TQ, kv_UR, o_TO, lse_HT);
  return run_sequences(exec, shape, one, [&](std::int64_t t, std::int64_t u) {
    return forward_arrays(shape, t, u, q_TQ, kv_UR, o_TO, lse_HT);
  });
}

bool cudnn_attention_backward(const ExecSpace& exec, const AttentionShape& shape,
                              float scale, const DeviceView<const Bf16, 2>& q_TQ,
                              const DeviceView<const Bf16, 2>& kv_UR,
                              const DeviceView<const Bf16, 2>& o_TO,
                              const DeviceView<const float, 2>& lse_HT,
                              const DeviceView<const Bf16, 2>& do_TO,
                              const DeviceView<Bf16, 2>& dq_TQ,
                              const DeviceView<Bf16, 2>& dkv_UR) {
  if (!is_taken(shape) || !is_aligned(q_TQ) || !are_aligned(shape, kv_UR) ||
      !is_aligned(o_TO) || !is_aligned(do_TO) || !is_aligned(dq_TQ) ||
      !are_aligned(shape, dkv_UR)) {
    return false;
  }
  GraphShape one = forward_shape(shape, scale, q_TQ, kv_UR, o_TO, lse_HT);
  one.backward = true;
  one.do_stride = stride_of(do_TO);
  one.dq_stride = stride_of(dq_TQ);
  one.dkv_stride = stride_of(dkv_UR);
  return run_sequences(exec, shape, one, [&](std::int64_t t, std::int64_t u) {
    GraphArrays arrays = forward_arrays(shape, t, u, q_TQ, kv_UR, o_TO, lse_HT);
    arrays.d_o = row_of(do_TO, t);
    arrays.dq = row_of(dq_TQ, t);
    arrays.dk = row_of(dkv_UR, u, shape.k_column);
    arrays.dv = row_of(dkv_UR, u, shape.v_column);
    return arrays;
  });
}

bool is_attention_by_products() { return by_products(); }

void set_attention_by_products(bool value) { by_products() = value; }

}  // namespace pleat::kernels

#endif
