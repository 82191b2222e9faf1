// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The processor that ExecSpace computes on.

#include <cstdint>
#include <string>

namespace pleat {

struct Processor {
  std::string
      name;  ///< "NVIDIA H100 80GB HBM3", "AMD EPYC"; "unknown" where none is told
  std::int64_t bytes = 0;  ///< of its memory; of the whole host for a CPU
};

/// \brief That of this rank, once Kokkos runs.
Processor this_processor();

}  // namespace pleat
