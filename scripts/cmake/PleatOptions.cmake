# SPDX-License-Identifier: Apache-2.0
# Compiler flags of every target, and the summary at the end of the configuration.
include(CheckCXXCompilerFlag)

add_library(pleat_warnings INTERFACE)
target_compile_options(pleat_warnings INTERFACE -Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC 12 finds overlaps and overruns in std::string where there are none (its bug 105651).
  # What a unity build includes looks like headers, whose types are other sources' too.
  target_compile_options(pleat_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow
                                 -Wno-subobject-linkage>)
endif()

# A program for a GPU is often built on another machine than it runs on, and nvcc's front end
# does not know all the intrinsics that -march=native brings in.
if(PLEAT_NATIVE AND NOT PLEAT_DEVICE)
  check_cxx_compiler_flag(-march=native PLEAT_KNOWS_NATIVE)
  if(PLEAT_KNOWS_NATIVE)
    add_compile_options(-march=native)
  endif()
endif()

# Intel's compilers take liberties with arithmetic unless told otherwise: the same run must give
# the same bits, and NaN must stay NaN.
if(CMAKE_CXX_COMPILER_ID STREQUAL IntelLLVM)
  add_compile_options(-ffp-model=precise)
endif()

if(PLEAT_SANITIZE)
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=undefined
                 -fno-omit-frame-pointer)
  add_compile_options(${sanitizers})
  add_link_options(${sanitizers})
endif()

function(pleat_print_summary)
  get_target_property(blas pleat_blas INTERFACE_LINK_LIBRARIES)
  if(NOT blas)
    set(blas "none (portable kernels)")
  endif()
  message(STATUS "Pleat ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}")
  message(STATUS "  Kokkos ${Kokkos_VERSION}: ${Kokkos_DEVICES} (${Kokkos_DIR})")
  message(STATUS "  MPI: ${MPI_C_LIBRARIES}")
  message(STATUS "  HDF5 ${HDF5_VERSION}: ${HDF5_C_LIBRARY_hdf5}")
  message(STATUS "  BLAS: ${blas}")
  if(TARGET DNNL::dnnl)
    message(STATUS "  oneDNN ${dnnl_VERSION}: products in bf16, where the CPU has them")
  endif()
  if(PLEAT_DEVICE)
    message(STATUS "  Products on the GPU: ${PLEAT_DEVICE_BLAS}")
    message(STATUS "  Fused attention: ${PLEAT_FUSED_ATTENTION}")
    message(STATUS "  NCCL (RCCL): ${PLEAT_NCCL}")
  endif()
  set(native ${PLEAT_NATIVE})
  if(PLEAT_DEVICE)
    set(native OFF)
  endif()
  message(STATUS "  native ${native}, sanitizers ${PLEAT_SANITIZE}, "
                 "tests ${PLEAT_BUILD_TESTS}")
endfunction()
