// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief NCCL or RCCL with the streams of the GPU. Included by the nccl_ sources alone,
/// which are empty where neither is compiled in.

#include "pleat/base/gpu_stream.hpp"

#if defined(KOKKOS_ENABLE_HIP)
#include <rccl/rccl.h>
#else  // without a GPU that of tests/comm/stand_in
#include <nccl.h>
#endif

namespace pleat::comm::detail {

using GpuStream = gpu::StreamHandle;

/// \brief The stream on which ExecSpace() queues.
inline GpuStream exec_stream() { return gpu::stream_of(ExecSpace()); }

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
