// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief HIP's stream in the place of CUDA's, for the declarations of ../nccl.h.

#include <hip/hip_runtime.h>

using cudaStream_t = hipStream_t;
