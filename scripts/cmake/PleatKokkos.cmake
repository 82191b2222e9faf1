# SPDX-License-Identifier: Apache-2.0
# Kokkos. An installed one (Kokkos_ROOT, modules, Spack) is used when found; otherwise the
# pinned one is built by scripts/build_kokkos, once per configuration, into PLEAT_CACHE.
set(PLEAT_KOKKOS_BACKEND "OPENMP" CACHE STRING
  "Kokkos device back end where Kokkos is not installed: OPENMP, SERIAL, CUDA or HIP")
option(PLEAT_KOKKOS_DEBUG "Build that Kokkos with bounds checks of every view access" OFF)
set(default_cache $ENV{HOME}/.cache/pleat)
if(DEFINED ENV{PLEAT_CACHE})
  set(default_cache $ENV{PLEAT_CACHE})
endif()
set(PLEAT_CACHE ${default_cache} CACHE PATH "Where builds of dependencies are kept")

find_package(Kokkos 4.5 QUIET)
if(NOT Kokkos_FOUND)
  set(command ${CMAKE_SOURCE_DIR}/scripts/build_kokkos
      --backend ${PLEAT_KOKKOS_BACKEND} --cache ${PLEAT_CACHE})
  if(PLEAT_KOKKOS_DEBUG)
    list(APPEND command --debug)
  endif()
  if(CMAKE_TOOLCHAIN_FILE)
    list(APPEND command --toolchain ${CMAKE_TOOLCHAIN_FILE})
  endif()
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env CXX=${CMAKE_CXX_COMPILER} ${command}
    OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE result)
  if(result)
    message(FATAL_ERROR "Kokkos is neither installed nor could it be built: see above. "
                        "Kokkos_ROOT names an installed one.")
  endif()
  set(Kokkos_ROOT ${prefix})
  find_package(Kokkos 4.5 REQUIRED)
endif()

# The back end of a GPU; empty where kernels run on the host.
set(PLEAT_DEVICE "")
foreach(device CUDA HIP SYCL)
  if(device IN_LIST Kokkos_DEVICES)
    set(PLEAT_DEVICE ${device})
  endif()
endforeach()

# Matrix products on NVIDIA GPUs (src/kernels/gemm_cublaslt.cpp).
add_library(pleat_cublaslt INTERFACE)
set(PLEAT_DEVICE_BLAS "none (portable kernels)")
if(PLEAT_DEVICE STREQUAL "CUDA")
  set(PLEAT_DEVICE_BLAS "cuBLASLt")
  find_package(CUDAToolkit REQUIRED)
  target_link_libraries(pleat_cublaslt INTERFACE CUDA::cublasLt)
endif()
