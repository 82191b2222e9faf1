// SPDX-License-Identifier: Apache-2.0
#include "pleat/bench/report.hpp"

#include <cmath>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

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

/// With the file's name, the phrase and what to do, and without words of the JSON library.
void expect_refused(const std::string& text, const std::string& phrase) {
  try {
    parse_report(text, "file.json");
    ADD_FAILURE() << "taken, though " << phrase << ": " << text;
  } catch (const InputError& error) {
    EXPECT_EQ(error.id(), "PL0960") << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'file.json'"), HasSubstr(phrase),
                                    HasSubstr("\nHINT: "), Not(HasSubstr("json.exception"))));
  }
}

TEST(Report, OtherFilesAreRefused) {
  expect_refused("[", "not valid JSON");
  expect_refused("[]", "expected a JSON object");
  expect_refused("{}", "is no report of 'pleat bench' in format 1");
  expect_refused(R"({"kind": "checkpoint", "format": 1})", "is no report");
  expect_refused(R"({"kind": "pleat bench", "format": 2})", "is no report");
  expect_refused(R"({"kind": "pleat bench", "format": 1})", "machine: is missing");
  std::string text = report_json(example());
  text.replace(text.find("\"limit\": 16.0"), 13, "\"limit\": \"x\"");
  expect_refused(text, "answers, entry 1, limit: expected a number, found \"x\"");
}

TEST(Report, AFileThatWasCutOffIsDamaged) {
  const std::string text = report_json(example());
  for (const std::size_t part : {4, 3, 2}) {
    expect_refused(text.substr(0, text.size() - text.size() / part),
                   "is a damaged report of 'pleat bench': is not valid JSON");
  }
}

/// A report with other content, as nobody writes it.
std::string spoilt(const std::function<void(nlohmann::json&)>& spoil) {
  nlohmann::json tree = nlohmann::json::parse(report_json(example()));
  spoil(tree);
  return tree.dump();
}

TEST(Report, DamageIsToldWithItsPlace) {
  using J = nlohmann::json;
  for (const char* list : {"machine", "answers", "peaks", "kernels", "exchanges"}) {
    const std::string name = list;
    expect_refused(spoilt([&](J& x) { x[name] = J{{"a", x[name][0]}}; }),
                   name + ": expected a list, found an object of 1");
    expect_refused(spoilt([&](J& x) { x[name][0] = 7; }),
                   name + ", entry 1: expected an object, found 7");
    expect_refused(spoilt([&](J& x) { x.erase(name); }), name + ": is missing");
  }
  expect_refused(spoilt([](J& x) { x["answers"][2]["content"].erase(11); }),
                 "answers, entry 3, content: expected a list of 12 numbers, found a list of 11");
  expect_refused(spoilt([](J& x) { x["answers"][2]["content"].push_back(1.0); }),
                 "answers, entry 3, content: expected a list of 12 numbers, found a list of 13");
  expect_refused(spoilt([](J& x) { x["answers"][0]["content"][4] = true; }),
                 "answers, entry 1, content, entry 5: expected a number, found true");
  expect_refused(spoilt([](J& x) { x["answers"][1].erase("ulps"); }),
                 "answers, entry 2, ulps: is missing");
  expect_refused(spoilt([](J& x) { x["peaks"][1]["name"] = 3; }),
                 "peaks, entry 2, name: expected a text, found 3");
}

TEST(Report, WhatNoMachineMeasuresIsRefused) {
  const auto refused = [](const auto& spoil, const std::string& phrase) {
    Report report = example();
    spoil(report);
    expect_refused(report_json(report), phrase);
  };
  const std::string positive = ": expected a number above 0, found ";
  refused([](Report& x) { x.kernels[0].seconds = 0.0; }, "kernels, entry 1, seconds" + positive);
  refused([](Report& x) { x.exchanges[0].seconds = -1.0; },
          "exchanges, entry 1, seconds" + positive);
  refused([](Report& x) { x.kernels[0].work = HUGE_VAL; },
          "kernels, entry 1, work: expected a number, found null");
  refused([](Report& x) { x.kernels[0].unit = "furlongs"; },
          "kernels, entry 1, unit: expected one of FLOP/s, B/s, found \"furlongs\"");
  refused([](Report& x) { x.peaks[0].rate = 0.0; }, "peaks, entry 1, rate" + positive);
  refused([](Report& x) { x.answers[0].element = "fp99"; }, "answers, entry 1, element");
  refused([](Report& x) { x.answers[0].precision = "fp99"; }, "answers, entry 1, precision");
  // Work over time that is no number to compare with.
  refused([](Report& x) { x.kernels[0].seconds = 1e-320; },
          "kernels, entry 1: expected a rate of 1e-30 to 1e+30, found inf");
  refused([](Report& x) { x.exchanges[0].work = 1e-320; }, "exchanges, entry 1: expected a rate");
  refused([](Report& x) { x.peaks[1].rate = 1e300; }, "peaks, entry 2, rate: expected a rate");
}

TEST(Report, WhatIsThereTwiceIsRefused) {
  const auto refused = [](auto list, const std::string& name) {
    Report report = example();
    const auto once = report.*list;
    (report.*list).insert((report.*list).end(), once.begin(), once.end());
    const std::string entry = std::to_string(once.size() + 1);
    expect_refused(report_json(report), name + ", entry " + entry + ": '");
  };
  refused(&Report::machine, "machine");
  refused(&Report::answers, "answers");
  refused(&Report::peaks, "peaks");
  refused(&Report::kernels, "kernels");
  refused(&Report::exchanges, "exchanges");
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

// Whichever way round they are given, what only one of them has is shown.
TEST(Compare, WhatOnlyOneHasIsShown) {
  const Report a = example();
  Report b = example();
  b.machine.push_back({"driver", "steam"});
  b.peaks[0].unit = "B/s";
  b.peaks.push_back({"exchange", 3.0e9, "B/s"});
  b.kernels[0].shape = "5 x 6 x 7";
  b.exchanges.clear();
  const std::string forth = compare_reports(a, b).text, back = compare_reports(b, a).text;
  EXPECT_THAT(forth, HasSubstr("driver         A     -\n                 B     steam\n"));
  EXPECT_THAT(back, HasSubstr("driver         A     steam\n                 B     -\n"));
  const std::string end = " +-\n";
  EXPECT_THAT(forth, testing::ContainsRegex("  exchange +- +3.0 GB/s" + end));
  EXPECT_THAT(back, testing::ContainsRegex("  exchange +3.0 GB/s +-" + end));
  EXPECT_THAT(forth, testing::ContainsRegex("  fp32 +150.0 GFLOP/s +-" + end));
  EXPECT_THAT(forth, testing::ContainsRegex("  fp32 +- +150.0 GB/s" + end));
  EXPECT_THAT(back, testing::ContainsRegex("  fp32 +- +150.0 GFLOP/s" + end));
  for (const std::string& text : {forth, back}) {
    EXPECT_THAT(text, AllOf(HasSubstr("(2 measured on one of them alone)"),
                            HasSubstr("(1 measured on one of them alone)")));
  }
}

// Reports that no file holds are counted rightly, too.
TEST(Compare, RepeatedRatesAreNotCountedBelowZero) {
  Report thrice = example();
  const Rate rate = thrice.kernels[0];
  thrice.kernels.assign(3, rate);
  EXPECT_THAT(compare_reports(thrice, example()).text, Not(HasSubstr("alone")));
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
