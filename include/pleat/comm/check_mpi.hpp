// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Turns the return codes of MPI into exceptions.

namespace pleat::comm::detail {
/// \throws InternalError PL0810 with the text that MPI has for the code
void check_mpi(int code, const char* call, const char* file, int line);
}  // namespace pleat::comm::detail

/// \brief Calls MPI and throws when it fails: `PLEAT_CHECK_MPI(MPI_Barrier(handle));`.
#define PLEAT_CHECK_MPI(call) \
  ::pleat::comm::detail::check_mpi((call), #call, __FILE__, __LINE__)
