# SPDX-License-Identifier: Apache-2.0
# Toolchain of the preset hip-gfx90a, for Kokkos and Pleat alike: the clang of a ROCm
# installation (ROCM_PATH, else /opt/rocm), else Debian 12's clang 16 with the headers and
# device libraries of its ROCm 5.2 packages. (Debian's hipcc takes clang 15, which crashes
# on Kokkos.)
set(rocm_path /opt/rocm)
if(DEFINED ENV{ROCM_PATH})
  set(rocm_path $ENV{ROCM_PATH})
endif()
if(EXISTS ${rocm_path}/bin/amdclang++)
  set(CMAKE_CXX_COMPILER ${rocm_path}/bin/amdclang++)
else()
  set(CMAKE_CXX_COMPILER /usr/lib/llvm-16/bin/clang++)
  # What is compiled or linked without HIP has no use for the paths.
  set(CMAKE_CXX_FLAGS_INIT "--rocm-path=/usr \
--rocm-device-lib-path=/usr/lib/x86_64-linux-gnu/amdgcn/bitcode \
-Wno-unused-command-line-argument")
endif()
