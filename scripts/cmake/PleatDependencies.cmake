# SPDX-License-Identifier: Apache-2.0
# Finds every dependency; an installed Kokkos is taken first, else the pinned archive is built.
include(PleatKokkos)
include(PleatBlas)
include(PleatOneDnn)
include(PleatRocblas)
include(PleatNccl)
find_package(MPI REQUIRED COMPONENTS C)
set(HDF5_PREFER_PARALLEL ON)
find_package(HDF5 REQUIRED COMPONENTS C)
if(NOT HDF5_IS_PARALLEL)
  message(FATAL_ERROR "HDF5 was built without MPI: install libhdf5-mpich-dev, load a parallel "
                      "HDF5 module, or set HDF5_ROOT to one.")
endif()
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(CLI11 REQUIRED)

# Optional: SentencePiece models as tokenizers (libsentencepiece-dev).
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h)
find_library(SENTENCEPIECE_LIBRARY sentencepiece)
add_library(pleat_sentencepiece INTERFACE)
if(SENTENCEPIECE_INCLUDE_DIR AND SENTENCEPIECE_LIBRARY)
  target_include_directories(pleat_sentencepiece SYSTEM INTERFACE ${SENTENCEPIECE_INCLUDE_DIR})
  target_link_libraries(pleat_sentencepiece INTERFACE ${SENTENCEPIECE_LIBRARY})
  target_compile_definitions(pleat_sentencepiece INTERFACE PLEAT_HAVE_SENTENCEPIECE)
endif()
