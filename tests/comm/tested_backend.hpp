// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The back end that a test is compiled for: MPI, or NCCL over its stand-in.

#include <memory>

#include "pleat/comm/communicator.hpp"
#include "support/world.hpp"

namespace pleat::comm {

#ifdef PLEAT_TEST_NCCL
inline constexpr BackendKind kTested = BackendKind::kNccl;
#else
inline constexpr BackendKind kTested = BackendKind::kMpi;
#endif

/// \brief All ranks of the test.
inline std::unique_ptr<Communicator> tested_group() {
  return make_communicator(test::world(), kTested);
}

}  // namespace pleat::comm
