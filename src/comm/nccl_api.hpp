// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief CUDA with NCCL or HIP with RCCL, under one name each. Included by the nccl_
/// sources alone, which are empty where neither is compiled in.

#include <Kokkos_Core.hpp>

#if defined(KOKKOS_ENABLE_HIP)
#include <hip/hip_runtime.h>
#include <rccl/rccl.h>
#define PLEAT_GPU(name) hip##name
#else  // without a GPU both headers are those of tests/comm/stand_in
#include <cuda_runtime.h>
#include <nccl.h>
#define PLEAT_GPU(name) cuda##name
#endif

#include "pleat/base/types.hpp"

namespace pleat::comm::detail {

using GpuStream = PLEAT_GPU(Stream_t);
using GpuEvent = PLEAT_GPU(Event_t);
using GpuError = PLEAT_GPU(Error_t);

/// \brief The stream on which ExecSpace() queues; in the stand-in null, which is the
/// host.
inline GpuStream exec_stream() {
#if defined(KOKKOS_ENABLE_CUDA)
  return ExecSpace().cuda_stream();
#elif defined(KOKKOS_ENABLE_HIP)
  return ExecSpace().hip_stream();
#else
  return nullptr;
#endif
}

/// \brief Kernels in the order of a stream.
class StreamKernels {
 public:
#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP)
  explicit StreamKernels(GpuStream stream) : exec_(stream) {}
  template <class Launch>
  void run(const Launch& launch) const {
    launch(exec_);
  }

 private:
  ExecSpace exec_;
#else
  explicit StreamKernels(GpuStream stream) : stream_(stream) {}
  template <class Launch>
  void run(const Launch& launch) const {
    cudaStreamSynchronize(stream_);
    launch(ExecSpace());
    Kokkos::fence("pleat::comm::StreamKernels");
  }

 private:
  GpuStream stream_;
#endif
};

}  // namespace pleat::comm::detail
