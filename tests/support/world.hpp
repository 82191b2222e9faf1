// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

namespace pleat::test {

/// \brief The communicator of all ranks of the test.
MPI_Comm world();

}  // namespace pleat::test
