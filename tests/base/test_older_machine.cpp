// SPDX-License-Identifier: Apache-2.0
// What the program says where instructions are missing that it was built with: valgrind's
// processor knows none of AVX-512.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/command.hpp"

namespace pleat::test {
namespace {

TEST(OlderMachine, IsToldWhatItLacks) {
#if !defined(__AVX512F__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "this build runs under valgrind, or not at all";
#else
  if (run_command("valgrind --version").exit_code != 0) {
    ASSERT_EQ(std::getenv("PLEAT_CI"), nullptr) << "there is no valgrind";
    GTEST_SKIP() << "needs valgrind";
  }
  const CommandResult result = run_command("valgrind -q '" PLEAT_PROGRAM "' --version");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output,
              testing::StartsWith("pleat: PL0107: this program was built for a machine with "
                                  "AVX-512"));
  EXPECT_THAT(result.output, testing::EndsWith("-DPLEAT_NATIVE=OFF.\n"));
#endif
}

}  // namespace
}  // namespace pleat::test
