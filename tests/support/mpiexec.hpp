// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Starting programs on several ranks from within a test.

#include <string>

#include <fmt/format.h>

namespace pleat::test {

/// \brief "mpiexec -n N ...", to be followed by a program and its arguments. The ranks
/// may outnumber the cores.
inline std::string mpiexec(int ranks) {
  return fmt::format("'{}' -n {} env OMP_NUM_THREADS=1 LD_PRELOAD='{}'", PLEAT_MPIEXEC,
                     ranks, PLEAT_TEST_PRELOAD);
}

}  // namespace pleat::test
