# SPDX-License-Identifier: Apache-2.0
# cuDNN's fused attention on NVIDIA GPUs (target pleat_cudnn). For the build headers are enough,
# its own and those of its frontend, which scripts/fetch_cudnn fetches: the library is opened at
# run time. CUDNN_ROOT and CUDNN_FRONTEND_ROOT name other places. Builds for the host look for the
# same headers, for a test alone (tests/kernels).
set(PLEAT_CUDNN AUTO CACHE STRING
  "Fused attention by cuDNN on NVIDIA GPUs: AUTO (where its headers are), ON or OFF")
set_property(CACHE PLEAT_CUDNN PROPERTY STRINGS AUTO ON OFF)
add_library(pleat_cudnn INTERFACE)
set(PLEAT_FUSED_ATTENTION none)

# In the toolkit, the system, or the packages of python3.
function(pleat_find_cudnn)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  set(packages)
  if(Python3_FOUND)
    execute_process(COMMAND ${Python3_EXECUTABLE} -c
      "import site; print(*site.getsitepackages(), site.getusersitepackages(), sep=';')"
      OUTPUT_VARIABLE packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(TRANSFORM packages APPEND /nvidia/cudnn/include)
  endif()
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h
    HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${CUDAToolkit_INCLUDE_DIRS} PATHS ${packages}
    PATH_SUFFIXES include)
endfunction()

# No other version is looked for than the pinned one or the one that is named.
function(pleat_find_cudnn_frontend)
  if(NOT CUDNN_FRONTEND_INCLUDE_DIR AND NOT CUDNN_FRONTEND_ROOT
     AND NOT DEFINED ENV{CUDNN_FRONTEND_ROOT})
    execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/fetch_cudnn ${PLEAT_CACHE}
      OUTPUT_VARIABLE fetched OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
    PATHS ${CUDNN_FRONTEND_ROOT} $ENV{CUDNN_FRONTEND_ROOT} ${fetched}
    PATH_SUFFIXES include NO_DEFAULT_PATH)
endfunction()

# Sets `result` to what is not on this machine, or to nothing.
function(pleat_find_attention_graphs result)
  set(${result} "" PARENT_SCOPE)
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND)
    set(${result} "CUDA toolkit" PARENT_SCOPE)
    return()
  endif()
  pleat_find_cudnn()
  if(NOT CUDNN_INCLUDE_DIR)
    set(${result} "cudnn_graph.h of cuDNN 9 (CUDNN_ROOT)" PARENT_SCOPE)
    return()
  endif()
  pleat_find_cudnn_frontend()
  if(NOT CUDNN_FRONTEND_INCLUDE_DIR)
    set(${result} "cudnn_frontend.h (scripts/fetch_cudnn; CUDNN_FRONTEND_ROOT)" PARENT_SCOPE)
  endif()
endfunction()

# The frontend alone, compiled by the host compiler: nothing of Kokkos, no kernels.
function(pleat_add_attention_graphs)
  find_package(CUDAToolkit REQUIRED)
  add_library(pleat_attention_graphs STATIC ${CMAKE_SOURCE_DIR}/src/kernels/attention_graphs.cpp)
  target_include_directories(pleat_attention_graphs PUBLIC ${CMAKE_SOURCE_DIR}/src/kernels)
  target_include_directories(pleat_attention_graphs SYSTEM PRIVATE
    ${CUDNN_FRONTEND_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_definitions(pleat_attention_graphs PRIVATE PLEAT_CUDNN_GRAPHS
    NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING)
  target_link_libraries(pleat_attention_graphs PRIVATE pleat_warnings ${CMAKE_DL_LIBS})
endfunction()

if(NOT PLEAT_DEVICE STREQUAL "CUDA" OR NOT PLEAT_CUDNN)
  return()
endif()
pleat_find_attention_graphs(missing)
if(NOT missing)
  pleat_add_attention_graphs()
  target_link_libraries(pleat_cudnn INTERFACE pleat_attention_graphs)
  target_compile_definitions(pleat_cudnn INTERFACE PLEAT_HAVE_CUDNN)
  set(PLEAT_FUSED_ATTENTION "cuDNN, where it is at run time (${CUDNN_INCLUDE_DIR})")
elseif(PLEAT_CUDNN STREQUAL "ON")
  message(FATAL_ERROR "PLEAT_CUDNN is ON, and here is no ${missing}.")
else()
  set(PLEAT_FUSED_ATTENTION "none: here is no ${missing}")
endif()
