// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief From a machine and a job to the text of a batch script.

#include <cstdint>
#include <string>
#include <vector>

#include "batch_machine.hpp"

namespace pleat::cli {

struct BatchJob {
  BatchSystem system = BatchSystem::kSlurm;
  std::string program;                ///< absolute path of pleat
  std::string deck;                   ///< as seen from the folder
  std::vector<std::string> settings;  ///< "section.key=value"
  std::string folder;                 ///< in which the job works
  std::string script;                 ///< the script's own path, to queue it again
  std::string name;
  std::string run_folder;
  bool has_wall_limit = false;  ///< the deck or a setting says when to stop
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;
  std::int64_t seconds = 0;  ///< of the job
  std::string account;
  std::string queue;
  std::vector<std::string> remarks;  ///< comment lines at the top

  std::int64_t ranks() const { return nodes * ranks_per_node; }
};

/// \brief The script. \throws InputError PL0942 a placeholder that does not exist
std::string batch_script(const MachineDescription& machine, const BatchJob& job);

/// \brief A word that the shell takes as it is: unchanged where nothing in it is special,
/// else in single quotes.
std::string shell_word(const std::string& text);

/// \brief "sbatch", "qsub" or "flux batch".
std::string submit_command(BatchSystem system);

}  // namespace pleat::cli
