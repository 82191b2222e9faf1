// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A library's attention on one stream: its plans, its memory, and whether its results
/// are believed (docs/adr/0019).

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "attention_graphs.hpp"
#include "pleat/base/types.hpp"

namespace pleat::kernels {

/// \brief Which shapes the library forms follows from shape, library and GPU alone, never from
/// what happened before, nor from the memory that is free: a run that is continued keeps its
/// bits.
class AttentionEngine {
 public:
  explicit AttentionEngine(const ExecSpace& exec);

  /// \brief Plans a shape that is new, and compares its results with the products'; then it
  /// waits for `exec`.
  /// \return null where the products are to form it; a warning has said why, unless the
  /// library is not on this machine. \throws InternalError PL0816
  const AttentionGraph* graph(const ExecSpace& exec, const GraphShape& shape);

  /// \brief Queues it. \throws InternalError PL0815 where the library fails, PL0816 where
  /// there is no memory for its workspace
  void run(const ExecSpace& exec, const GraphShape& shape, const AttentionGraph& graph,
           const GraphArrays& arrays);

 private:
  const AttentionGraph* planned(const GraphShape& shape);
  bool is_believed(const ExecSpace& exec, const GraphShape& shape);
  std::string run_sample(const ExecSpace& exec, const GraphShape& sample,
                         const GraphArrays& arrays);
  void reserve(const ExecSpace& exec, const GraphShape& shape, std::size_t bytes);
  void give_back_workspace(const ExecSpace& exec);

  std::unique_ptr<AttentionGraphs> graphs_;
  std::int64_t most_workspace_;
  std::map<GraphShape, std::unique_ptr<AttentionGraph>> known_;
  DeviceView<std::byte, 1> workspace_;  ///< of one graph after the other
};

}  // namespace pleat::kernels
