// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The commands of the program; each lives in one file of src/cli.
///
/// A command registers its options under a CLI11 subcommand. Parsing only notes what to
/// do; the work is a Job that runs once the whole command line is known to be right.

#include <functional>

#include "pleat/base/error.hpp"
#include "pleat/base/runtime.hpp"

namespace CLI {
class App;
}

namespace pleat::cli {

/// \brief What the chosen command does.
struct Job {
  std::function<ExitCode(const Runtime& runtime)> work;  ///< \throws Error of any kind
  /// Whether it needs Kokkos, and so in a build for GPUs a GPU, which a login node may lack.
  bool computes = true;
};

/// \name Registration: one per command.
/// \param program  gets a subcommand
/// \param job      set by the callback of the subcommand when the user chose it
/// @{
void add_train(CLI::App& program, Job& job);
void add_verify(CLI::App& program, Job& job);
void add_check(CLI::App& program, Job& job);
void add_map(CLI::App& program, Job& job);
void add_params(CLI::App& program, Job& job);
void add_convert(CLI::App& program, Job& job);
void add_inspect(CLI::App& program, Job& job);
void add_generate(CLI::App& program, Job& job);
void add_batch(CLI::App& program, Job& job);
void add_bench(CLI::App& program, Job& job);
/// @}

/// \brief Reads the command line. Help and version are jobs as well: they print and are
/// done. \throws InputError PL0901 for what the command line does not allow
Job read_command_line(int argc, const char* const* argv);

}  // namespace pleat::cli
