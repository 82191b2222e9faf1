# SPDX-License-Identifier: Apache-2.0
# Finds every dependency; an installed Kokkos is taken first, else the pinned archive is built.
include(PleatKokkos)
find_package(MPI REQUIRED COMPONENTS C)
set(HDF5_PREFER_PARALLEL ON)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(BLAS REQUIRED)

add_library(pleat_warnings INTERFACE)
target_compile_options(pleat_warnings INTERFACE -Wall -Wextra)
