// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What a batch script has to know of a machine: inputs/machines/*.toml.

#include <cstdint>
#include <string>
#include <vector>

namespace pleat::cli {

enum class BatchSystem { kSlurm, kPbs, kFlux };
enum class Launcher { kAutomatic, kSrun, kMpiexec, kFlux };

/// \brief Texts for directives and launchers may hold {nodes}, {ranks}, {ranks_per_node},
/// {cores} and {cpus} (cores and logical CPUs of one rank).
struct MachineDescription {
  std::string title;
  BatchSystem system = BatchSystem::kSlurm;  ///< the one that it has
  std::int64_t cores = 0;  ///< of a node, for the program; 0: unknown, nothing is bound
  std::int64_t threads_per_core = 1;  ///< logical CPUs of a core that Slurm counts
  std::int64_t gpus = 0;              ///< of a node, one for each rank; 0: runs on CPUs

  std::string queue;     ///< unless the command line names one
  bool account = false;  ///< a job without an account is refused
  std::vector<std::string> slurm_directives;
  std::vector<std::string> pbs_directives;
  std::vector<std::string> flux_directives;
  std::string pbs_chunk;  ///< what a node of `-l select` asks for: "ncpus=64:ngpus=8"

  std::vector<std::string> modules;
  std::vector<std::string> variables;  ///< "NAME=value"

  Launcher launcher = Launcher::kAutomatic;  ///< automatic: what the batch system has
  std::vector<std::string> srun_options;
  std::vector<std::string> mpiexec_options;
  std::vector<std::string> flux_options;
  std::vector<std::string> wrapper;  ///< a program and arguments in front of pleat
  std::string device_variable;  ///< gets the device of a rank: "CUDA_VISIBLE_DEVICES"
  std::vector<std::int64_t> devices;  ///< in the order of the ranks; empty: 0, 1, 2, ...
};

/// \brief Reads a description. \param name  of a file of inputs/machines without
/// ".toml", or a path that ends so
/// \throws InputError PL0941 no such machine (names the nearest), PL0942 a value that
/// cannot be used, PL0201 to PL0208 as for a deck, with file and line
MachineDescription read_machine(const std::string& name);

}  // namespace pleat::cli
