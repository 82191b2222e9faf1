# SPDX-License-Identifier: Apache-2.0
# pleat_add_test(NAME attention SOURCES test_attention.cpp LABELS unit LIBRARIES pleat_kernels
#                [RANKS 1 2 4] [THREADS 2] [TIMEOUT 60] [ENVIRONMENT A=1 ...] [PROGRAM]
#                [OPTIMISED])
#
# Builds test_<NAME> from the sources with the shared main (MPI and Kokkos through
# pleat::Runtime, then GoogleTest) and registers it once per rank count: "attention" on one
# rank, without a launcher, "attention.ranks=4" through mpiexec. One rank runs with two
# threads unless THREADS says otherwise; several ranks have one thread each and may outnumber
# the cores: they preload tests/support/yield_when_idle.c. PROGRAM: the test runs build/pleat,
# whose path it finds in PLEAT_PROGRAM. OPTIMISED: for a test that instantiates kernels itself.
# The target unit_tests builds what carries the label unit.
include_guard()
find_package(GTest REQUIRED)
add_custom_target(unit_tests)

function(pleat_add_test)
  cmake_parse_arguments(ARG "PROGRAM;OPTIMISED" "NAME;TIMEOUT;THREADS"
                        "SOURCES;LABELS;LIBRARIES;RANKS;ENVIRONMENT" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_NAME OR NOT ARG_SOURCES OR NOT ARG_LABELS)
    message(FATAL_ERROR "pleat_add_test(${ARG_NAME}): NAME, SOURCES and LABELS are needed; "
                        "not understood: '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  if(ARG_PROGRAM AND NOT TARGET pleat)
    message(STATUS "Test ${ARG_NAME} needs the program, which is not built: skipped")
    return()
  endif()
  string(REGEX REPLACE "^test_" "" name ${ARG_NAME})
  set(target test_${name})
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE ${ARG_LIBRARIES} pleat_test_main pleat_warnings)
  if(NOT ARG_OPTIMISED)
    pleat_compile_as_test(${target})
  endif()
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if("unit" IN_LIST ARG_LABELS)
    add_dependencies(unit_tests ${target})
  endif()
  if(ARG_PROGRAM)
    add_dependencies(${target} pleat)
    target_compile_definitions(${target} PRIVATE PLEAT_PROGRAM="$<TARGET_FILE:pleat>")
  endif()

  if(NOT ARG_RANKS)
    set(ARG_RANKS 1)
  endif()
  foreach(ranks IN LISTS ARG_RANKS)
    pleat_register_test(${name} ${target} ${ranks})
  endforeach()
endfunction()

# pleat_add_test_run(NAME interrupted.two_ranks TEST interrupted FILTER *Two/* LABELS restart
#                    RANKS 1 TIMEOUT 240 [CONFIGURATION Full])
#
# Registers more cases of a test that is built, for ctest --build-config CONFIGURATION alone
# where there is one.
function(pleat_add_test_run)
  cmake_parse_arguments(ARG "" "NAME;TEST;FILTER;TIMEOUT;CONFIGURATION" "LABELS;RANKS" ${ARGN})
  if(NOT TARGET test_${ARG_TEST})  # it needs what is not built
    return()
  endif()
  set(ARG_ENVIRONMENT GTEST_FILTER=${ARG_FILTER})
  foreach(ranks IN LISTS ARG_RANKS)
    pleat_register_test(${ARG_NAME} test_${ARG_TEST} ${ranks})
  endforeach()
endfunction()

# What a test does itself need not be fast, so it is compiled quickly; undefined behaviour is
# sought in what it tests.
function(pleat_compile_as_test target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(PLEAT_SANITIZE)
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
  pleat_precompile(${target} pleat_test_main)
endfunction()

# What is done for each rank count; reads the caller's ARG_*.
function(pleat_register_test name target ranks)
  set(test ${name})
  set(command $<TARGET_FILE:${target}>)
  set(threads 1)
  if(ranks EQUAL 1)
    set(threads 2)
  else()
    set(test ${name}.ranks=${ranks})
    # Into the ranks alone, not into the launcher.
    set(command ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS}
                env LD_PRELOAD=${PLEAT_TEST_PRELOAD} ${command} ${MPIEXEC_POSTFLAGS})
  endif()
  if(ARG_THREADS)
    set(threads ${ARG_THREADS})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(PLEAT_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  set(configurations)
  if(ARG_CONFIGURATION)
    set(configurations CONFIGURATIONS ${ARG_CONFIGURATION})
  endif()
  add_test(NAME ${test} COMMAND ${command} ${configurations})
  math(EXPR processors "${ranks} * ${threads}")
  # Bound threads of oversubscribed ranks would share one core.
  set(environment OMP_NUM_THREADS=${threads} OMP_PROC_BIND=false OMPI_ALLOW_RUN_AS_ROOT=1
      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
      OMPI_MCA_hwloc_base_binding_policy=none
      ${PLEAT_TEST_ENVIRONMENT} ${ARG_ENVIRONMENT})
  set_tests_properties(${test} PROPERTIES
    LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${processors}
    ENVIRONMENT "${environment}")
endfunction()
