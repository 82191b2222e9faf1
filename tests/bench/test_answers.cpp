// SPDX-License-Identifier: Apache-2.0
#include "pleat/bench/answers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace pleat::bench {
namespace {

std::string name_of(const Answer& answer) {
  return answer.kernel + ", " + answer.output + ", " + answer.precision;
}

TEST(Answers, HoldOnThisMachine) {
  for (const Answer& answer : compute_answers()) {
    EXPECT_TRUE(answer.passes()) << name_of(answer) << ": " << answer.ulps << " ulps of "
                                 << answer.element << ", limit " << answer.limit;
  }
}

TEST(Answers, EveryStoredOneIsComputed) {
  std::set<const StoredAnswer*> computed;
  std::map<std::string, int> precisions;
  for (const Answer& answer : compute_answers()) {
    ASSERT_NE(stored_answer_of(answer), nullptr) << name_of(answer);
    computed.insert(stored_answer_of(answer));
    ++precisions[answer.precision];
  }
  EXPECT_EQ(computed.size(), stored_answers().size());
  EXPECT_EQ(precisions["fp64"], precisions["fp32"]);
  EXPECT_GT(precisions["bf16"], 15);
}

TEST(Answers, HaveTheSameBitsEveryTime) {
  const auto first = compute_answers();
  const auto again = compute_answers();
  ASSERT_EQ(first.size(), again.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].content, again[i].content) << name_of(first[i]);
  }
}

constexpr std::int64_t kCount = 1591;

/// A tensor whose largest element is 1, and its stored answer.
struct Tensor {
  std::vector<double> elements;
  StoredAnswer stored;
};

Tensor example() {
  Tensor tensor{.elements = std::vector<double>(kCount), .stored = {}};
  for (std::size_t i = 0; i < tensor.elements.size(); ++i) {
    tensor.elements[i] = std::ldexp(static_cast<double>(i % 255) - 127.0, -7);
  }
  tensor.elements[7] = 1.0;
  tensor.stored.count = kCount;
  tensor.stored.largest = 1.0;
  tensor.stored.content = content_of(tensor.elements);
  return tensor;
}

double ulps(const Tensor& tensor, const std::string& element,
            const std::vector<double>& elements) {
  return difference_in_ulps(tensor.stored, element, content_of(elements),
                            tensor.stored.content);
}

TEST(Answers, UnitsAreThoseOfTheType) {
  const Tensor tensor = example();
  auto elements = tensor.elements;
  EXPECT_EQ(ulps(tensor, "fp64", elements), 0.0);
  elements.front() += std::numeric_limits<float>::epsilon();
  EXPECT_DOUBLE_EQ(ulps(tensor, "fp32", elements), 1.0);
  EXPECT_DOUBLE_EQ(ulps(tensor, "fp64", elements), 0x1p29);
  EXPECT_DOUBLE_EQ(ulps(tensor, "bf16", elements), 0x1p-16);
}

TEST(Answers, UnitsFollowTheLargestElement) {
  Tensor tensor = example();
  for (double& element : tensor.elements) element *= 1024.0;
  tensor.stored.largest *= 1024.0;
  tensor.stored.content = content_of(tensor.elements);
  auto elements = tensor.elements;
  elements.back() += 1024.0 * std::numeric_limits<float>::epsilon();
  EXPECT_DOUBLE_EQ(ulps(tensor, "fp32", elements), 1.0);
}

// Whatever element it is, and in the coarsest type too.
TEST(Answers, OneWrongElementAnywhereShows) {
  const Tensor tensor = example();
  for (std::size_t i = 0; i < tensor.elements.size(); ++i) {
    auto elements = tensor.elements;
    elements[i] += 0.5;
    EXPECT_GT(ulps(tensor, "bf16", elements), limit_in_ulps("bf16")) << "element " << i;
    elements[i] = tensor.elements[i] + 0x1p-14;
    EXPECT_GT(ulps(tensor, "fp32", elements), limit_in_ulps("fp32")) << "element " << i;
  }
}

TEST(Answers, ElementsThatChangePlacesShow) {
  const Tensor tensor = example();
  auto elements = tensor.elements;
  std::rotate(elements.begin(), elements.begin() + 1, elements.end());
  EXPECT_GT(ulps(tensor, "bf16", elements), limit_in_ulps("bf16"));
}

TEST(Answers, WhatIsNoNumberIsInfinitelyFar) {
  const Tensor tensor = example();
  for (const double value : {std::nan(""), HUGE_VAL}) {
    auto elements = tensor.elements;
    elements[1000] = value;
    EXPECT_EQ(ulps(tensor, "fp64", elements), HUGE_VAL);
  }
}

TEST(Answers, IntegersAreEqualOrWrong) {
  const Tensor tensor = example();
  auto elements = tensor.elements;
  elements[3] += 0x1p-7;
  EXPECT_GT(ulps(tensor, "int", elements), limit_in_ulps("int"));
  EXPECT_EQ(limit_in_ulps("int"), 0.0);
}

// Products in TensorFloat-32, which keeps 10 bits after the first, would be seen in fp32.
TEST(Answers, InputsHaveMoreBitsThanShorterProductsKeep) {
  const auto stored = stored_answers();
  const auto gemm =
      std::find_if(stored.begin(), stored.end(), [](const StoredAnswer& answer) {
        return answer.kernel == "gemm" && answer.inputs == Inputs::kWide;
      });
  ASSERT_NE(gemm, stored.end());
  const auto narrow =
      std::find_if(stored.begin(), stored.end(), [&](const StoredAnswer& answer) {
        return answer.kernel == "gemm" && answer.output == gemm->output &&
               answer.inputs == Inputs::kNarrow;
      });
  ASSERT_NE(narrow, stored.end());
  EXPECT_GT(difference_in_ulps(*gemm, "fp32", narrow->content, gemm->content), 1000.0);
}

}  // namespace
}  // namespace pleat::bench
