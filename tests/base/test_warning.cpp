// SPDX-License-Identifier: Apache-2.0
// What the environment and warnings of code without a Log say, and who says it.
#include "pleat/base/warning.hpp"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "pleat/base/environment.hpp"
#include "pleat/base/error.hpp"

namespace pleat {
namespace {

/// What is printed by that rank of three.
std::string said(int rank, Concerns whom) {
  testing::internal::CaptureStderr();
  set_rank_of_warnings(rank, 3);
  warn(whom, "it is late");
  set_rank_of_warnings(0, 1);
  return testing::internal::GetCapturedStderr();
}

TEST(Warning, WhatConcernsAllIsSaidOnce) {
  EXPECT_EQ(said(0, Concerns::kEveryRank), "WARNING: it is late\n");
  EXPECT_EQ(said(2, Concerns::kEveryRank), "");
}

TEST(Warning, WhatConcernsOneNamesIt) {
  EXPECT_EQ(said(2, Concerns::kThisRank), "WARNING: rank 2 of 3: it is late\n");
  testing::internal::CaptureStderr();
  warn(Concerns::kThisRank, "it is late");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "WARNING: it is late\n");
}

TEST(Environment, OtherWishesAreRefused) {
  constexpr const char* kVariable = "PLEAT_TEST_WISH";
  unsetenv(kVariable);
  EXPECT_FALSE(is_wished(kVariable, "products"));
  setenv(kVariable, "", 1);
  EXPECT_FALSE(is_wished(kVariable, "products"));
  setenv(kVariable, "products", 1);
  EXPECT_TRUE(is_wished(kVariable, "products"));
  setenv(kVariable, "product", 1);
  try {
    is_wished(kVariable, "products");
    FAIL() << "no exception";
  } catch (const InputError& error) {
    EXPECT_EQ(error.id(), "PL0108");
    EXPECT_NE(std::string(error.what()).find("is 'product', expected 'products'"),
              std::string::npos)
        << error.what();
  }
  unsetenv(kVariable);
}

}  // namespace
}  // namespace pleat
