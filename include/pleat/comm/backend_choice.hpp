// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Which library moves data that lies on a device.

#include <mpi.h>

namespace pleat::comm {

/// \brief `kNccl` is NCCL on NVIDIA and RCCL on AMD.
enum class BackendKind { kAuto, kMpi, kNccl };

/// \brief "nccl".
const char* backend_name(BackendKind kind);

/// \brief What the ranks of `world` use: never kAuto. Automatic is NCCL where the arrays
/// of the program lie on a GPU, the library is compiled in and each rank has a GPU to
/// itself; else MPI. Collective over `world`. \throws InputError PL0805 when NCCL is
/// wanted and not compiled in, PL0806 when it is wanted and ranks share a GPU
BackendKind choose_backend(BackendKind wanted, MPI_Comm world);

}  // namespace pleat::comm
