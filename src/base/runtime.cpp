// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/runtime.hpp"

#include <cstdlib>

#include <Kokkos_Core.hpp>

namespace pleat {

Runtime::Runtime(int& argc, char**& argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  Kokkos::InitializationSettings settings;
  settings.set_disable_warnings(true);
  Kokkos::initialize(settings);
}

Runtime::~Runtime() {
  Kokkos::finalize();
  MPI_Finalize();
}

MPI_Comm Runtime::world() const { return MPI_COMM_WORLD; }

void Runtime::abort(int exit_code) const {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::abort();
}

}  // namespace pleat
