// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The program, as numbered steps; each command lives in src/cli.

#include <cstdlib>
#include <exception>

#include "pleat/base/runtime.hpp"
#include "pleat/cli/commands.hpp"

int main(int argc, char** argv) {
  // 1. MPI and Kokkos, for the lifetime of the program.
  const pleat::Runtime runtime(argc, argv);
  try {
    // 2. What does the user want? Nothing is done yet.
    const pleat::cli::Job job = pleat::cli::read_command_line(argc, argv);

    // 3. Do it.
    return static_cast<int>(job(runtime));
  } catch (const std::exception& failure) {
    // 4. Any failure is one readable message and its exit code; it ends the whole job,
    //    since the other ranks may be waiting for this one.
    const int exit_code = pleat::cli::report_failure(runtime, failure);
    if (runtime.ranks() > 1) runtime.abort(exit_code);
    // HDF5 crashes in MPI_Finalize when it holds a file whose last writes failed.
    if (exit_code == static_cast<int>(pleat::ExitCode::kInputOutput))
      std::_Exit(exit_code);
    return exit_code;
  }
}
