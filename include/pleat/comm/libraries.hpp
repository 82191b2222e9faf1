// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The libraries that move data, for reports.

#include <string>

namespace pleat::comm {

/// \brief Name and version of the MPI library, in one line.
std::string mpi_library();

/// \brief The version of NCCL (RCCL) that is compiled in; empty where none is.
std::string nccl_library();

}  // namespace pleat::comm
