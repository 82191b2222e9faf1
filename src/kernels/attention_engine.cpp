// SPDX-License-Identifier: Apache-2.0
#include "attention_engine.hpp"

#include "attention_cudnn.hpp"

#if defined(PLEAT_CUDNN_ATTENTION)

#include <exception>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "attention_check.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/gpu_stream.hpp"
#include "pleat/base/processor.hpp"
#include "pleat/base/warning.hpp"

namespace pleat::kernels {
namespace {

/// Of the GPU's memory, at most so little goes to a plan's workspace. On Hopper the backward
/// pass takes a matrix of sequence x sequence for each head: 1.5 GiB for 48 heads at 4,096,
/// of 2.5 GiB on an H100. Total memory, not what is free: that differs from run to run.
constexpr std::int64_t kWorkspaceShare = 32;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

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

}  // namespace

AttentionEngine::AttentionEngine(const ExecSpace& exec)
    : graphs_(open_attention_graphs(gpu::stream_of(exec))),
      most_workspace_(this_processor().bytes / kWorkspaceShare) {}

const AttentionGraph* AttentionEngine::graph(const ExecSpace& exec,
                                             const GraphShape& shape) {
  if (!graphs_) return nullptr;
  const AttentionGraph* const graph = planned(shape);
  return graph != nullptr && is_believed(exec, shape) ? graph : nullptr;
}

void AttentionEngine::run(const ExecSpace& exec, const GraphShape& shape,
                          const AttentionGraph& graph, const GraphArrays& arrays) {
  reserve(exec, shape, graph.workspace_bytes());
  const std::string failure = graph.run(arrays, workspace_.data());
  PLEAT_REQUIRE(failure.empty(), InternalError, "PL0815",
                "{} failed in {}: {}\n"
                "HINT: with PLEAT_ATTENTION=products matrix products form it, which gives "
                "other bits.",
                attention_graph_library(), name_of(shape), failure);
}

/// Null where the library does not do this shape, or wants too much memory for it.
const AttentionGraph* AttentionEngine::planned(const GraphShape& shape) {
  const auto known = known_.find(shape);
  if (known != known_.end()) return known->second.get();
  auto [graph, refusal] = graphs_->plan(shape);
  const auto bytes = graph ? static_cast<std::int64_t>(graph->workspace_bytes()) : 0;
  if (bytes > most_workspace_) {
    graph.reset();
    refusal = fmt::format(
        "it wants {:.1f} GiB of workspace, more than {:.1f} GiB, 1/{} of the GPU's memory",
        static_cast<double>(bytes) / kGiB, static_cast<double>(most_workspace_) / kGiB,
        kWorkspaceShare);
  }
  if (!graph) warn_of_products(Concerns::kEveryRank, shape, refusal);
  return known_.emplace(shape, std::move(graph)).first->second.get();
}

/// Whether the library agrees with the products about a shape like this; asked once.
bool AttentionEngine::is_believed(const ExecSpace& exec, const GraphShape& shape) {
  static std::mutex mutex;
  static std::map<CheckedCase, bool> verdicts;
  const std::lock_guard lock(mutex);
  const CheckedCase checked = checked_case(shape);
  const auto known = verdicts.find(checked);
  if (known != verdicts.end()) return known->second;
  const std::string finding = check_attention(
      exec, checked, [&](const GraphShape& sample, const GraphArrays& arrays) {
        return run_sample(exec, sample, arrays);
      });
  if (!finding.empty()) {
    give_back_workspace(exec);
    warn_of_products(Concerns::kThisRank, shape, finding);
  }
  return verdicts.emplace(checked, finding.empty()).first->second;
}

/// A failure is a finding of the check, unless it is one of memory.
std::string AttentionEngine::run_sample(const ExecSpace& exec, const GraphShape& sample,
                                        const GraphArrays& arrays) {
  const AttentionGraph* const graph = planned(sample);
  if (graph == nullptr) return "it refuses the problem by which it is checked";
  reserve(exec, sample, graph->workspace_bytes());
  const std::string failure = graph->run(arrays, workspace_.data());
  return failure.empty() ? "" : "it failed when it was checked: " + failure;
}

/// The old workspace goes before the new one comes: there may not be room for both. To go on
/// by products where there is none would give other bits whenever memory is short.
void AttentionEngine::reserve(const ExecSpace& exec, const GraphShape& shape,
                              std::size_t bytes) {
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

/// The next run takes one anew.
void AttentionEngine::give_back_workspace(const ExecSpace& exec) {
  exec.fence("pleat::kernels::attention: a workspace is given back");
  workspace_ = {};
}

}  // namespace pleat::kernels

#endif
