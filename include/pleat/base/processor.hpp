// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The processor that ExecSpace computes on.

#include <cstdint>
#include <span>
#include <string>

namespace pleat {

struct Processor {
  std::string
      name;  ///< "NVIDIA H100 80GB HBM3", "AMD EPYC"; "unknown" where none is told
  std::int64_t bytes = 0;  ///< of its memory; of the whole host for a CPU
};

/// \brief That of this rank, once Kokkos runs.
Processor this_processor();

/// \brief A set of instructions of the host.
struct InstructionSet {
  const char* name;
  bool used;     ///< by the compiler, in this build
  bool present;  ///< on this machine
};

/// \brief Those that programs built for one machine (-march=native) miss on an older one.
/// Empty where the compiler cannot ask.
std::span<const InstructionSet> instruction_sets();

/// \brief Refuses a machine that would end the program at the first such instruction, with
/// no word. \throws InputError PL0107
void require_instructions(std::span<const InstructionSet> sets);

}  // namespace pleat
