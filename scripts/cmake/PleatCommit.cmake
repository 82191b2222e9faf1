# SPDX-License-Identifier: Apache-2.0
# pleat_tell_commit(pleat): the program knows the commit that it is built from (build_commit).
# Each build asks git and writes a small source, but only where the answer is another one.
#
#     cmake -DSOURCE=FOLDER -DOUTPUT=FILE -P PleatCommit.cmake
function(pleat_tell_commit target)
  set(output ${CMAKE_BINARY_DIR}/commit.cpp)
  add_custom_target(${target}_commit BYPRODUCTS ${output} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${output}
            -P ${CMAKE_CURRENT_FUNCTION_LIST_FILE})
  target_sources(${target} PRIVATE ${output})
  set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_dependencies(${target} ${target}_commit)
endfunction()

# Sets `answer` to what git says about the sources, or to nothing.
function(pleat_ask_git answer)
  execute_process(COMMAND git -C ${SOURCE} ${ARGN}
    OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    set(text "")
  endif()
  set(${answer} "${text}" PARENT_SCOPE)
endfunction()

function(pleat_write_commit)
  set(text "commit unknown")
  # A copy of the sources inside of another repository is none of its commits.
  pleat_ask_git(root rev-parse --show-toplevel)
  file(REAL_PATH "${SOURCE}" source)
  if(root STREQUAL source)
    pleat_ask_git(commit rev-parse --short=12 HEAD)
    pleat_ask_git(changes status --porcelain --untracked-files=no)
  endif()
  if(commit)
    set(text "commit ${commit}")
  endif()
  if(commit AND changes)
    string(APPEND text ", changed")
  endif()
  # Untouched where it has this content already.
  file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"// SPDX-License-Identifier: Apache-2.0
#include \"pleat/base/commit.hpp\"

std::string_view pleat::build_commit() { return \"${text}\"; }
")
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  cmake_policy(VERSION 3.25)
  pleat_write_commit()
endif()
