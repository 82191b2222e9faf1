# SPDX-License-Identifier: Apache-2.0
# The host BLAS as target pleat_blas. Debian's OpenMP build of OpenBLAS comes first: it shares
# one thread pool with Kokkos, while the pthread build, for which `libopenblas.so` may stand,
# brings its own and fights it for the cores. Linked by its full path, so that it is also
# the one loaded (RPATH). BLA_VENDOR asks for another one. PLEAT_HAVE_BLAS is defined where
# there is any; without it the portable kernels do the work.
find_library(PLEAT_OPENBLAS_OPENMP openblas NO_DEFAULT_PATH
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp)
mark_as_advanced(PLEAT_OPENBLAS_OPENMP)

if(PLEAT_OPENBLAS_OPENMP AND NOT BLA_VENDOR)
  set(blas_libraries ${PLEAT_OPENBLAS_OPENMP})
else()
  find_package(BLAS QUIET)
  set(blas_libraries ${BLAS_LIBRARIES})
endif()

add_library(pleat_blas INTERFACE)
if(blas_libraries)
  target_link_libraries(pleat_blas INTERFACE ${blas_libraries})
  target_compile_definitions(pleat_blas INTERFACE PLEAT_HAVE_BLAS)
endif()
