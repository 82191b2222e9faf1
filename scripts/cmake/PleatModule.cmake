# SPDX-License-Identifier: Apache-2.0
# pleat_add_module(NAME base DEPENDS ...): one static library per module, built from every
# .cpp of its folder; DEPENDS are linked publicly. A module without sources only passes its
# headers and dependencies on.
function(pleat_add_module)
  cmake_parse_arguments(ARG "" "NAME" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(NOT sources)
    add_library(pleat_${ARG_NAME} INTERFACE)
    target_include_directories(pleat_${ARG_NAME} INTERFACE ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(pleat_${ARG_NAME} INTERFACE ${ARG_DEPENDS})
    return()
  endif()
  add_library(pleat_${ARG_NAME} STATIC ${sources})
  target_include_directories(pleat_${ARG_NAME} PUBLIC ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(pleat_${ARG_NAME} PUBLIC ${ARG_DEPENDS} PRIVATE pleat_warnings)
  pleat_precompile(pleat_${ARG_NAME} pleat_base)
endfunction()

# Reading Kokkos' headers takes most of the time of a small source. They are compiled once
# for the kernels, whose flags differ, once for the other modules, and once with GoogleTest for
# the tests.
function(pleat_precompile target)
  if(NOT PLEAT_PRECOMPILED_HEADERS OR PLEAT_DEVICE)
    return()
  endif()
  if(target STREQUAL pleat_test_main)
    target_precompile_headers(${target} PRIVATE <Kokkos_Core.hpp> <fmt/format.h>
                              <gmock/gmock.h> <gtest/gtest.h>)
  elseif(target MATCHES "^pleat_(base|kernels)$")
    target_precompile_headers(${target} PRIVATE <Kokkos_Core.hpp> <fmt/format.h>)
  else()
    target_precompile_headers(${target} REUSE_FROM ${ARGN})
  endif()
endfunction()
