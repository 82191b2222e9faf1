// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The program, as numbered steps; each command lives in src/cli.

#include "pleat/base/runtime.hpp"
#include "pleat/cli/commands.hpp"

int main(int argc, char** argv) {
  // 1. MPI, for the lifetime of the program. Any failure is one readable message and its exit
  //    code, and ends the whole job.
  pleat::Runtime runtime(argc, argv);
  return runtime.run([&] {
    // 2. What does the user want? Nothing is done yet.
    const pleat::cli::Job job = pleat::cli::read_command_line(argc, argv);

    // 3. Kokkos and its device, for what computes.
    if (job.computes) runtime.start_kokkos();

    // 4. Do it.
    return static_cast<int>(job.work(runtime));
  });
}
