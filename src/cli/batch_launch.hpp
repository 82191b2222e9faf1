// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief How a batch script starts ranks, binds them and hands signals to them.

#include <cstdint>
#include <string>

#include "batch_machine.hpp"

namespace pleat::cli {

/// \brief Replaces {nodes}, {ranks}, {ranks_per_node}, {cores} and {cpus} in the texts of
/// a machine description.
class Placeholders {
 public:
  Placeholders(const MachineDescription& machine, std::int64_t nodes,
               std::int64_t ranks_per_node);
  /// \throws InputError PL0942 another name in braces
  std::string fill(const std::string& text) const;
  std::int64_t cores() const { return cores_; }  ///< of one rank, at least 1
  std::int64_t cpus() const { return cores_ * threads_per_core_; }

 private:
  std::int64_t value_of(const std::string& name, const std::string& text) const;

  std::int64_t nodes_;
  std::int64_t ranks_per_node_;
  std::int64_t cores_;
  std::int64_t threads_per_core_;
};

/// \brief The machine's launcher, or the one that comes with the batch system.
Launcher launcher_of(const MachineDescription& machine, BatchSystem system);

/// \brief Bash arrays `launch` (all ranks) and `launch_one` (a single rank on this node).
std::string launch_commands(const MachineDescription& machine, BatchSystem system,
                            std::int64_t nodes, std::int64_t ranks_per_node);

/// \brief Runs `launch` with pleat train and leaves its exit code in `code`; the variable
/// `ended` is not empty when the batch system ended the job meanwhile.
std::string signal_handling(const MachineDescription& machine, BatchSystem system);

}  // namespace pleat::cli
