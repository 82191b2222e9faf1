# SPDX-License-Identifier: Apache-2.0
# The host BLAS as target pleat_blas. Debian's OpenMP build of OpenBLAS comes first: it shares
# one thread pool with Kokkos, while the pthread build, which `libblas.so` may stand for,
# brings its own and fights it for the cores. Linked by its full path, so that it is also
# the one loaded (RPATH). PLEAT_HAVE_CBLAS is defined where cblas.h came with it; without
# any BLAS the portable kernels do the work.
find_library(PLEAT_OPENBLAS_OPENMP openblas NO_DEFAULT_PATH
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp)
mark_as_advanced(PLEAT_OPENBLAS_OPENMP)

add_library(pleat_blas INTERFACE)
if(PLEAT_OPENBLAS_OPENMP AND NOT BLA_VENDOR)
  set(blas_libraries ${PLEAT_OPENBLAS_OPENMP})
  set(cblas_hint /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp)
else()
  find_package(BLAS QUIET)
  set(blas_libraries ${BLAS_LIBRARIES})
endif()

if(blas_libraries)
  target_link_libraries(pleat_blas INTERFACE ${blas_libraries})
  find_path(PLEAT_CBLAS_INCLUDE_DIR cblas.h HINTS ${cblas_hint} PATH_SUFFIXES openblas)
  mark_as_advanced(PLEAT_CBLAS_INCLUDE_DIR)
  include(CheckSymbolExists)
  set(CMAKE_REQUIRED_LIBRARIES ${blas_libraries})
  set(CMAKE_REQUIRED_INCLUDES ${PLEAT_CBLAS_INCLUDE_DIR})
  check_symbol_exists(cblas_sgemm cblas.h PLEAT_FOUND_CBLAS)
  unset(CMAKE_REQUIRED_LIBRARIES)
  unset(CMAKE_REQUIRED_INCLUDES)
  if(PLEAT_FOUND_CBLAS)
    target_include_directories(pleat_blas SYSTEM INTERFACE ${PLEAT_CBLAS_INCLUDE_DIR})
    target_compile_definitions(pleat_blas INTERFACE PLEAT_HAVE_CBLAS)
  endif()
endif()
