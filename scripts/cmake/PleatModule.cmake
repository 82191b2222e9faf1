# SPDX-License-Identifier: Apache-2.0
# pleat_add_module(NAME base DEPENDS ...): one static library per module, built from every
# .cpp of its folder; DEPENDS are linked publicly.
function(pleat_add_module)
  cmake_parse_arguments(ARG "" "NAME" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(pleat_${ARG_NAME} STATIC ${sources})
  target_include_directories(pleat_${ARG_NAME} PUBLIC ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(pleat_${ARG_NAME} PUBLIC ${ARG_DEPENDS} PRIVATE pleat_warnings)
endfunction()
