// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pleat {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Error, EachKindHasItsExitCode) {
  EXPECT_EQ(static_cast<int>(InputError("PL0201", "x").exit_code()), 2);
  EXPECT_EQ(static_cast<int>(NumericalError("PL0701", "x").exit_code()), 3);
  EXPECT_EQ(static_cast<int>(IoError("PL0301", "x").exit_code()), 4);
  EXPECT_EQ(static_cast<int>(InternalError("PL0100", "x").exit_code()), 1);
}

TEST(Error, RequireFormatsTheTextOnFailureOnly) {
  const auto require = [](int value) {
    PLEAT_REQUIRE(value > 0, InputError, "PL0205", "got {}", value);
  };
  EXPECT_NO_THROW(require(1));
  try {
    require(-3);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "PL0205: got -3");
    EXPECT_EQ(error.id(), "PL0205");
  }
}

TEST(Error, AssertionsNameExpressionAndPlace) {
  const int rows = 3;
  try {
    PLEAT_ASSERT(rows == 4, "{} rows", rows);
    FAIL() << "accepted";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), StartsWith("PL0100: assertion 'rows == 4' failed"));
    EXPECT_THAT(error.what(), HasSubstr("test_error.cpp:"));
    EXPECT_THAT(error.what(), HasSubstr("3 rows"));
    EXPECT_THAT(error.what(), HasSubstr("HINT: "));
  }
}

}  // namespace
}  // namespace pleat
