// SPDX-License-Identifier: Apache-2.0
// The page of a machine over the stand-ins of cuDNN and cuBLASLt: do its stored answers reach
// fused attention and the products of all experts in one call, and does it say so?
#include "answer_products.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "attention_cudnn.hpp"
#include "cublasLt.h"
#include "gemm_cublaslt.hpp"
#include "pleat/kernels/libraries.hpp"
#include "stand_in/attention_switches.hpp"

namespace pleat::bench {
namespace {

void expect_right_answers() {
  std::vector<Answer> answers;
  AnswerCase<Bf16> in_bf16(answers);
  answer_products(in_bf16);
  EXPECT_EQ(answers.size(), 15U);
  for (const Answer& answer : answers) {
    EXPECT_TRUE(answer.passes()) << answer.kernel << ", " << answer.output << ": "
                                 << answer.ulps << " ulps, limit " << answer.limit;
  }
}

struct LibraryAnswers : testing::Test {
  LibraryAnswers() { stand_in::blas_calls() = {}, test::attention_stand_in() = {}; }
  ~LibraryAnswers() override { set_ways_without_libraries(false); }
  static void set_ways_without_libraries(bool value) {
    kernels::set_attention_by_products(value);
    kernels::set_groups_one_by_one(value);
  }
};

TEST_F(LibraryAnswers, ReachTheLibraries) {
  EXPECT_EQ(kernels::attention_library(), "stand-in, else cuBLASLt");
  EXPECT_EQ(kernels::product_library<Bf16>(), "cuBLASLt 13.8.2, experts in one call");
  expect_right_answers();
  // A check and a sequence, forwards and backwards.
  EXPECT_EQ(test::attention_stand_in().run, 4);
  // Forward, gradient of the rows, gradient of the weights.
  EXPECT_EQ(stand_in::blas_calls().grouped_products, 3);
  EXPECT_EQ(stand_in::blas_calls().wrong_groups, 0);
}

TEST_F(LibraryAnswers, HoldByTheOtherWaysToo) {
  set_ways_without_libraries(true);
  EXPECT_EQ(kernels::attention_library(), "cuBLASLt (as PLEAT_ATTENTION says)");
  EXPECT_EQ(kernels::product_library<Bf16>(),
            "cuBLASLt 13.8.2, experts one by one (as PLEAT_GROUPED_PRODUCTS says)");
  expect_right_answers();
  EXPECT_EQ(test::attention_stand_in().run, 0);
  EXPECT_EQ(stand_in::blas_calls().grouped_products, 0);
}

}  // namespace
}  // namespace pleat::bench
