# SPDX-License-Identifier: Apache-2.0
# Kokkos and Kokkos Kernels: an installed pair (Kokkos_ROOT, modules, Spack) is used when found;
# otherwise the pinned 4.5.1 pair is built from the PyPI archive that carries both trees, once
# per configuration, into PLEAT_CACHE.
set(PLEAT_KOKKOS_BACKEND "OPENMP" CACHE STRING "Kokkos device back end: OPENMP, SERIAL or CUDA")
set(PLEAT_CACHE "$ENV{HOME}/.cache/pleat" CACHE PATH "Where dependency builds are kept")

find_package(Kokkos 4.5 QUIET)
find_package(KokkosKernels QUIET)
if(NOT Kokkos_FOUND OR NOT KokkosKernels_FOUND)
  set(script ${CMAKE_SOURCE_DIR}/scripts/build_kokkos)
  execute_process(
    COMMAND ${script} --backend ${PLEAT_KOKKOS_BACKEND} --cache ${PLEAT_CACHE}
    OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE result)
  if(result)
    message(FATAL_ERROR "Kokkos is neither installed nor could it be built by ${script}.")
  endif()
  list(PREPEND CMAKE_PREFIX_PATH ${prefix})
  find_package(Kokkos 4.5 REQUIRED)
  find_package(KokkosKernels REQUIRED)
endif()
message(STATUS "Kokkos ${Kokkos_VERSION} (${Kokkos_DEVICES}) from ${Kokkos_DIR}")
