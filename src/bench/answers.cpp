// SPDX-License-Identifier: Apache-2.0
#include "pleat/bench/answers.hpp"

#include <algorithm>
#include <cmath>

#include "answer_case.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/random.hpp"

namespace pleat::bench {
namespace {

/// Bits of a significand; integers are compared as fp64.
int significant_bits(std::string_view element) {
  if (element == "bf16") return 8;
  if (element == "fp32") return 24;
  return 53;
}

/// One unit in the last place of numbers like x.
double unit_in_last_place(std::string_view element, double x) {
  return std::ldexp(1.0, std::ilogb(x) - significant_bits(element) + 1);
}

/// How many of `count` elements part j of a content stands for.
std::int64_t terms_of_part(std::int64_t count, std::size_t part) {
  if (part < kSamples) return 1;
  const auto sum = static_cast<std::int64_t>(part - kSamples);
  constexpr auto kStride = static_cast<std::int64_t>(kSums);
  return std::max<std::int64_t>(1, (count - sum + kStride - 1) / kStride);
}

}  // namespace

Content content_of(std::span<const double> elements) {
  PLEAT_ASSERT(!elements.empty(), "content of a tensor without elements");
  Content content{};
  const std::size_t last = elements.size() - 1;
  for (std::size_t j = 0; j < kSamples; ++j) {
    content[j] = elements[last * j / (kSamples - 1)];
  }
  std::array<long double, kSums> sums{};
  const CounterRandom signs = answer_random("content");
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const bool plus = (signs.bits64(i) & 1U) != 0;
    sums[i % kSums] += plus ? elements[i] : -elements[i];
  }
  for (std::size_t j = 0; j < kSums; ++j) {
    content[kSamples + j] = static_cast<double>(sums[j]);
  }
  return content;
}

double difference_in_ulps(const StoredAnswer& stored, std::string_view element,
                          const Content& a, const Content& b) {
  const double unit = unit_in_last_place(element, stored.largest);
  double largest = 0.0;
  for (std::size_t j = 0; j < a.size(); ++j) {
    const double difference = std::abs(a[j] - b[j]);
    if (!std::isfinite(difference)) return HUGE_VAL;
    const auto terms = static_cast<double>(terms_of_part(stored.count, j));
    largest = std::max(largest, difference / (unit * std::sqrt(terms)));
  }
  return largest;
}

double limit_in_ulps(std::string_view element) {
  if (element == "int") return 0.0;
  // One result is rounded once, from sums in fp32; an element that enters the next kernel
  // in bf16 brings its own rounding.
  if (element == "bf16") return 2.0;
  return 16.0;
}

const StoredAnswer* stored_answer_of(const Answer& answer) {
  const Inputs inputs = inputs_of(answer.precision);
  for (const StoredAnswer& stored : stored_answers()) {
    if (stored.kernel == answer.kernel && stored.output == answer.output &&
        stored.inputs == inputs)
      return &stored;
  }
  return nullptr;
}

void take_worst_of_ranks(std::vector<Answer>& answers, comm::Communicator& ranks) {
  HostView<double, 1> ulps_N("pleat::bench::ulps", answers.size());
  for (std::size_t i = 0; i < answers.size(); ++i) ulps_N(i) = answers[i].ulps;
  ranks.all_reduce(ulps_N, comm::Reduction::kMax);
  for (std::size_t i = 0; i < answers.size(); ++i) answers[i].ulps = ulps_N(i);
}

}  // namespace pleat::bench
