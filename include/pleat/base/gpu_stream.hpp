// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Streams and events of a GPU as objects: CUDA on NVIDIA, HIP on AMD, under one
/// name each. Empty in builds for hosts, but for tests that bring streams of their own
/// (PLEAT_GPU_STAND_IN: tests/comm/stand_in).

#include "pleat/base/types.hpp"

#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP) || \
    defined(PLEAT_GPU_STAND_IN)

#if defined(KOKKOS_ENABLE_HIP)
#include <hip/hip_runtime.h>
#define PLEAT_GPU(name) hip##name
#else
#include <cuda_runtime.h>
#define PLEAT_GPU(name) cuda##name
#endif

#include "pleat/base/error.hpp"

namespace pleat::gpu {

using StreamHandle = PLEAT_GPU(Stream_t);
using EventHandle = PLEAT_GPU(Event_t);
using Error = PLEAT_GPU(Error_t);

/// \throws InternalError PL0812 with the text that CUDA or HIP has for the error
inline void check(Error error, const char* call) {
  PLEAT_REQUIRE(error == PLEAT_GPU(Success), InternalError, "PL0812", "{} failed: {}",
                call, PLEAT_GPU(GetErrorString)(error));
}

/// \brief The stream on which `exec` queues; in the stand-in null, which is the host.
inline StreamHandle stream_of([[maybe_unused]] const ExecSpace& exec) {
#if defined(KOKKOS_ENABLE_CUDA)
  return exec.cuda_stream();
#elif defined(KOKKOS_ENABLE_HIP)
  return exec.hip_stream();
#else
  return nullptr;
#endif
}

/// \brief A stream that does not wait for the null stream.
class Stream {
 public:
  Stream() {
    check(PLEAT_GPU(StreamCreateWithFlags)(&handle_, PLEAT_GPU(StreamNonBlocking)),
          "StreamCreateWithFlags");
  }
  ~Stream() { (void)PLEAT_GPU(StreamDestroy)(handle_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  StreamHandle get() const { return handle_; }

 private:
  StreamHandle handle_ = nullptr;
};

/// \brief A point in the order of a stream.
class Event {
 public:
  Event() {
    check(PLEAT_GPU(EventCreateWithFlags)(&handle_, PLEAT_GPU(EventDisableTiming)),
          "EventCreateWithFlags");
  }
  ~Event() { (void)PLEAT_GPU(EventDestroy)(handle_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(StreamHandle stream) const {
    check(PLEAT_GPU(EventRecord)(handle_, stream), "EventRecord");
  }
  /// \brief What `stream` is given later runs after the recorded point.
  void hold_back(StreamHandle stream) const {
    check(PLEAT_GPU(StreamWaitEvent)(stream, handle_, 0), "StreamWaitEvent");
  }
  bool reached() const {
    const Error state = PLEAT_GPU(EventQuery)(handle_);
    if (state == PLEAT_GPU(ErrorNotReady)) return false;
    check(state, "EventQuery");
    return true;
  }

 private:
  EventHandle handle_ = nullptr;
};

}  // namespace pleat::gpu

#endif
