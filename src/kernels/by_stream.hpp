// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the kernels of one stream share, such as a library's handle. Kernels are free
/// functions that are handed an execution space and nothing else, so it is found by its stream.

#include <map>
#include <memory>
#include <mutex>

#include "pleat/base/gpu_stream.hpp"

namespace pleat::kernels {

/// \brief The `Object` of this stream, made from `exec` when it is first asked for. All of them
/// are gone before Kokkos is.
template <class Object>
Object& object_by_stream(const ExecSpace& exec) {
  static std::mutex mutex;
  static std::map<gpu::StreamHandle, std::unique_ptr<Object>> objects;
  const std::lock_guard lock(mutex);
  if (objects.empty()) Kokkos::push_finalize_hook([] { objects.clear(); });
  auto& object = objects[gpu::stream_of(exec)];
  if (!object) object = std::make_unique<Object>(exec);
  return *object;
}

}  // namespace pleat::kernels
