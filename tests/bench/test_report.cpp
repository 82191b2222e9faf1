// SPDX-License-Identifier: Apache-2.0
#include "pleat/bench/report.hpp"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/error.hpp"

namespace pleat::bench {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Answer answer_of(const StoredAnswer& stored, double error_in_fp32_ulps = 0.0) {
  Answer answer{.kernel = std::string(stored.kernel),
                .output = std::string(stored.output),
                .precision = stored.inputs == Inputs::kNarrow ? "bf16" : "fp32",
                .element = "fp32",
                .content = stored.content,
                .ulps = error_in_fp32_ulps,
                .limit = limit_in_ulps("fp32")};
  answer.content.front() +=
      error_in_fp32_ulps * std::ldexp(1.0, std::ilogb(stored.largest) - 23);
  return answer;
}

Report example() {
  Report report;
  report.machine = {{"device", "abacus"}, {"ranks", "2"}};
  for (const StoredAnswer& stored : stored_answers())
    report.answers.push_back(answer_of(stored));
  report.answers[0] = answer_of(stored_answers()[0], 1.0);
  report.answers[1] = answer_of(stored_answers()[1], 2.0);
  report.peaks = {{"fp32", 1.5e11, "FLOP/s"}, {"memory", 2.0e10, "B/s"}};
  report.kernels = {
      {"gemm forward", "fp32", "2 x 3 x 4", 0.001, 1.0e8, "FLOP/s", "fp32", 0.66}};
  report.exchanges = {
      {"all-reduce", "fp32", "64 KiB", 1.0e-5, 65536.0, "B/s", "exchange", 0.5}};
  return report;
}

TEST(Report, JsonRoundTrip) {
  const Report report = example();
  const std::string text = report_json(report);
  const Report again = parse_report(text, "here");
  EXPECT_EQ(report_json(again), text);
  ASSERT_EQ(again.answers.size(), stored_answers().size());
  EXPECT_EQ(again.answers[1].content, report.answers[1].content) << "bit for bit";
  EXPECT_EQ(again.machine[0].value, "abacus");
  EXPECT_EQ(again.peaks[1].rate, 2.0e10);
  EXPECT_EQ(again.kernels[0].rate(), report.kernels[0].rate());
  EXPECT_EQ(again.exchanges[0].share, 0.5);
}

TEST(Report, WhatIsNoNumberStaysWrongThroughJson) {
  Report report = example();
  report.answers[0].content[5] = std::nan("");
  report.answers[0].ulps = HUGE_VAL;
  const Report again = parse_report(report_json(report), "here");
  EXPECT_TRUE(std::isnan(again.answers[0].content[5]));
  EXPECT_EQ(again.answers[0].ulps, HUGE_VAL);
  EXPECT_FALSE(all_pass(again.answers));
  EXPECT_FALSE(compare_reports(example(), again).correct);
}

void expect_refused(const std::string& text, const std::string& id) {
  try {
    parse_report(text, "file.json");
    ADD_FAILURE() << "taken: " << text;
  } catch (const InputError& error) {
    EXPECT_EQ(error.id(), id) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("file.json"));
  }
}

TEST(Report, OtherFilesAreRefused) {
  expect_refused("[", "PL0401");
  expect_refused("{}", "PL0960");
  expect_refused(R"({"kind": "checkpoint", "format": 1})", "PL0960");
  expect_refused(R"({"kind": "pleat bench", "format": 2})", "PL0960");
  expect_refused(R"({"kind": "pleat bench", "format": 1})", "PL0960");
  std::string text = report_json(example());
  text.replace(text.find("\"limit\": 16.0"), 13, "\"limit\": \"x\"");
  expect_refused(text, "PL0960");
}

TEST(Report, WhatNoMachineMeasuresIsRefused) {
  const auto refused = [](const auto& spoil) {
    Report report = example();
    spoil(report);
    expect_refused(report_json(report), "PL0960");
  };
  refused([](Report& x) { x.kernels[0].seconds = 0.0; });
  refused([](Report& x) { x.exchanges[0].seconds = -1.0; });
  refused([](Report& x) { x.kernels[0].work = HUGE_VAL; });
  refused([](Report& x) { x.kernels[0].unit = "furlongs"; });
  refused([](Report& x) { x.peaks[0].rate = 0.0; });
  refused([](Report& x) { x.answers[0].element = "fp99"; });
  refused([](Report& x) { x.answers[0].precision = "fp99"; });
  refused([](Report& x) { x.answers.push_back(x.answers[0]); });
}

TEST(Report, TextFromElsewhereIsPrintable) {
  Report report = example();
  report.machine[0].value = "abacus\x1b[31m\n";
  EXPECT_EQ(parse_report(report_json(report), "here").machine[0].value, "abacus?[31m?");
}

TEST(Report, TextSaysWhatIsWrong) {
  Report report = example();
  EXPECT_THAT(answers_table(report.answers),
              AllOf(HasSubstr("gemm, a b "), HasSubstr("1.00"), HasSubstr("2.00"),
                    Not(HasSubstr("WRONG"))));
  report.answers[1].ulps = 17.0;
  EXPECT_THAT(
      answers_summary(report.answers),
      AllOf(HasSubstr("WRONG: gemm, a b^T, in fp32: 17.00"), HasSubstr("16 allowed")));
  EXPECT_THAT(
      rates_table("kernels", report.kernels),
      AllOf(HasSubstr("100.0 GFLOP/s"), HasSubstr("66 % fp32"), HasSubstr("1.00 ms")));
  EXPECT_EQ(rates_table("exchanges", {}), "");
}

TEST(Compare, SideBySide) {
  const Report a = example();
  Report b = example();
  b.machine[0].value = "slide rule";
  b.answers[0] = answer_of(stored_answers()[0], -3.0);
  b.answers[0].ulps = 3.0;
  b.kernels[0].seconds = 0.002;
  const Comparison comparison = compare_reports(a, b);
  EXPECT_TRUE(comparison.correct);
  EXPECT_THAT(
      comparison.text,
      AllOf(HasSubstr("A     abacus"), HasSubstr("B     slide rule"),
            HasSubstr("both  2"), HasSubstr("100.0 GFLOP/s"), HasSubstr("50.0 GFLOP/s"),
            HasSubstr("0.50"), HasSubstr("CORRECT on both: ")));
  // At worst 2 ulps in A, 3 in B; they differ by 4 where the signs are opposite.
  EXPECT_THAT(comparison.text, testing::ContainsRegex("gemm +fp32 +2.00 +3.00 +4.00"));
}

TEST(Compare, RatesNeverDecide) {
  Report slow = example();
  slow.kernels[0].seconds *= 1.0e6;
  slow.exchanges.clear();
  slow.peaks[0].rate = 1.0;
  EXPECT_TRUE(compare_reports(example(), slow).correct);
}

TEST(Compare, AWrongAnswerDecides) {
  Report wrong = example();
  wrong.answers[1] = answer_of(stored_answers()[1], 20.0);
  const Comparison comparison = compare_reports(example(), wrong);
  EXPECT_FALSE(comparison.correct);
  EXPECT_THAT(comparison.text, HasSubstr("WRONG in B: gemm, a b^T, in fp32: 20.00"));
  EXPECT_FALSE(compare_reports(wrong, example()).correct);
}

// A file that says it passes is not believed, nor is its limit.
TEST(Compare, ContentIsComparedAnew) {
  Report wrong = example();
  wrong.answers[1] = answer_of(stored_answers()[1], 20.0);
  wrong.answers[1].ulps = 0.0;
  wrong.answers[1].limit = 1.0e6;
  EXPECT_FALSE(compare_reports(example(), wrong).correct);
}

TEST(Compare, AMissingAnswerDecides) {
  Report less = example();
  less.answers.pop_back();
  const Comparison comparison = compare_reports(example(), less);
  EXPECT_FALSE(comparison.correct);
  EXPECT_THAT(comparison.text, AllOf(HasSubstr("MISSING in B: 1 results"),
                                     HasSubstr("INCOMPLETE"), Not(HasSubstr("in A:"))));
  EXPECT_FALSE(compare_reports(less, less).correct) << "both lack the same";
  Report more = example();
  more.answers.push_back(answer_of(stored_answers()[0]));
  more.answers.back().precision = "fp64";
  EXPECT_THAT(compare_reports(example(), more).text, HasSubstr("MISSING in A: 1 results"));
}

TEST(Compare, AWrongAnswerThatTheOtherLacksDecides) {
  Report wrong = example(), less = example();
  wrong.answers[1] = answer_of(stored_answers()[1], 20.0);
  less.answers.erase(less.answers.begin() + 1);
  EXPECT_THAT(compare_reports(wrong, less).text,
              AllOf(HasSubstr("WRONG in A"), HasSubstr("MISSING in B"), HasSubstr("WRONG: ")));
}

TEST(Compare, NothingInCommonIsRefused) {
  Report other = example();
  other.answers.clear();
  EXPECT_THROW(compare_reports(example(), other), InputError);
}

}  // namespace
}  // namespace pleat::bench
