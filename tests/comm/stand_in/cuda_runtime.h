// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What of CUDA's streams the NCCL back end uses, on host memory. A stream is a
/// thread with a queue; the null stream is the calling thread, which holds no work back.

struct StandInStream;
struct StandInEvent;
using cudaStream_t = StandInStream*;
using cudaEvent_t = StandInEvent*;
enum cudaError_t { cudaSuccess = 0, cudaErrorNotReady = 600 };
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
const char* cudaGetErrorString(cudaError_t error);
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75 };
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device);
cudaError_t cudaDeviceGetPCIBusId(char* address, int length, int device);
