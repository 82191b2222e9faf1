// SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime.h"

#include <atomic>
#include <cstdio>

#include <mpi.h>

#include "counters.hpp"
#include "stream.hpp"

struct StandInEvent {
  std::shared_ptr<StandInStream::Progress> progress;  ///< none: the null stream
  std::int64_t position = 0;
};

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  ++stand_in::live_streams;
  *stream = new StandInStream;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  --stand_in::live_streams;
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  std::int64_t position = 0;
  {
    const std::lock_guard lock(stream->progress->mutex);
    position = stream->progress->queued;
  }
  stream->progress->wait_for(position);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (stream != nullptr && !event->progress) stream->after_exec = true;
  if (!event->progress) return cudaSuccess;
  const auto wait = [progress = event->progress, position = event->position] {
    progress->wait_for(position);
  };
  if (stream == nullptr) {
    wait();
  } else {
    stream->push(wait);
  }
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  ++stand_in::live_events;
  ++stand_in::made_events;
  *event = new StandInEvent;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  --stand_in::live_events;
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  *event = {};
  if (stream == nullptr) return cudaSuccess;
  const std::lock_guard lock(stream->progress->mutex);
  *event = {stream->progress, stream->progress->queued};
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!event->progress) return cudaSuccess;
  const std::lock_guard lock(event->progress->mutex);
  return event->progress->done >= event->position ? cudaSuccess : cudaErrorNotReady;
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "not ready";
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = stand_in::compute_capability;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* address, int length, int) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int place = stand_in::one_device ? 0 : rank;
  std::snprintf(address, static_cast<std::size_t>(length), "0000:%02x:00.0", place);
  return cudaSuccess;
}
