// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace stand_in {

inline std::atomic<int> live_streams{0};
inline std::atomic<int> live_events{0};
inline std::atomic<int> made_events{0};  ///< so far
/// Whether all ranks say that they have the same GPU.
inline std::atomic<bool> one_device{false};
/// The first digit of that of the GPU: 9 is Hopper.
inline std::atomic<int> compute_capability{9};

}  // namespace stand_in
