// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/processor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/error.hpp"

namespace pleat {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Processor, ThisMachineHasWhatThisBuildUses) {
  EXPECT_NO_THROW(require_instructions(instruction_sets()));
}

TEST(Processor, UsedAndMissingInstructionsAreNamed) {
  const InstructionSet sets[] = {{"OLD", true, true},
                                 {"NEW", true, false},
                                 {"NEWER", true, false},
                                 {"UNUSED", false, false}};
  try {
    require_instructions(sets);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), StartsWith("PL0107: "));
    EXPECT_THAT(error.what(), HasSubstr("NEW, NEWER, which"));
    EXPECT_THAT(error.what(), Not(HasSubstr("OLD")));
    EXPECT_THAT(error.what(), Not(HasSubstr("UNUSED")));
    EXPECT_THAT(error.what(), HasSubstr("HINT: "));
  }
}

}  // namespace
}  // namespace pleat
