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
endfunction()
