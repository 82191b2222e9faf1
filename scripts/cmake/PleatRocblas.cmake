# SPDX-License-Identifier: Apache-2.0
# rocBLAS as target pleat_rocblas, for matrix products on AMD GPUs (src/kernels/gemm_rocblas.cpp);
# ROCM_PATH or rocblas_ROOT names a place. PLEAT_HAVE_ROCBLAS is defined where it is found; without
# it the portable kernel does the work.
add_library(pleat_rocblas INTERFACE)
if(PLEAT_DEVICE STREQUAL "HIP")
  find_path(ROCBLAS_INCLUDE_DIR rocblas/rocblas.h
            HINTS ${rocblas_ROOT}/include $ENV{ROCM_PATH}/include /opt/rocm/include)
  find_library(ROCBLAS_LIBRARY rocblas
               HINTS ${rocblas_ROOT}/lib $ENV{ROCM_PATH}/lib /opt/rocm/lib)
  if(ROCBLAS_INCLUDE_DIR AND ROCBLAS_LIBRARY)
    target_include_directories(pleat_rocblas SYSTEM INTERFACE ${ROCBLAS_INCLUDE_DIR})
    target_link_libraries(pleat_rocblas INTERFACE ${ROCBLAS_LIBRARY})
    target_compile_definitions(pleat_rocblas INTERFACE PLEAT_HAVE_ROCBLAS)
    set(PLEAT_DEVICE_BLAS ${ROCBLAS_LIBRARY})
  endif()
endif()
