// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief `pleat bench` and the page of `pleat verify`, as a user calls them.
#include <gmock/gmock.h>

#include "pleat/bench/report.hpp"
#include "pleat/io/durable_file.hpp"
#include "support/mpiexec.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSmall = R"([run]
name = "small"
steps = 2
[model]
layers = 1
hidden = 48
heads = 4
kv_heads = 2
vocab = 96
[moe]
experts = 4
top_k = 2
ffn = 32
[batch]
sequence = 24
[data]
format = "synthetic"
[checkpoint]
resume = "none"
)";

class Bench : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write("small.toml", kSmall);
  }
  bench::Report report(const std::string& name) const {
    return bench::parse_report(io::read_small_file(path(name)), name);
  }
};

TEST_F(Bench, HelpSaysWhatItDoes) {
  const CommandResult help = pleat("bench --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.output,
              AllOf(HasSubstr("Usage: pleat bench"), HasSubstr("--portability"),
                    HasSubstr("--compare A B"), HasSubstr("--json")));
}

TEST_F(Bench, TimesTheKernelsOfADeckAndComparesWithItself) {
  const CommandResult timed = pleat(
      "bench small.toml batch.micro=2 batch.global=2 "
      "--seconds 0.1 --json a.json");
  ASSERT_EQ(timed.exit_code, 0) << timed.output;
  EXPECT_THAT(
      timed.output,
      AllOf(HasSubstr("kernels against stored answers"), HasSubstr("measured peaks"),
            HasSubstr("kernels of small"), HasSubstr("48 x 96 x 48"),
            HasSubstr("attention backward"), HasSubstr("adamw"), Not(HasSubstr("WRONG")),
            Not(HasSubstr("all-reduce"))));
  const bench::Report found = report("a.json");
  EXPECT_EQ(found.kernels.size(), 2U * 18U + 14U);
  for (const bench::Rate& rate : found.kernels) {
    EXPECT_GT(rate.seconds, 0.0) << rate.name;
    EXPECT_GT(rate.work, 0.0) << rate.name;
    EXPECT_GT(rate.share, 0.0) << rate.name;
  }
  EXPECT_TRUE(found.exchanges.empty()) << "one rank exchanges nothing";

  const CommandResult same = pleat("bench --compare a.json a.json");
  EXPECT_EQ(same.exit_code, 0) << same.output;
  EXPECT_THAT(same.output, AllOf(HasSubstr("A: a.json"), HasSubstr("CORRECT on both"),
                                 HasSubstr("1.00")));
  bench::Report wrong = found;
  wrong.answers.front().content.front() += 1.0;
  write("b.json", bench::report_json(wrong));
  const CommandResult other = pleat("bench --compare a.json b.json");
  EXPECT_EQ(other.exit_code, 1) << other.output;
  EXPECT_THAT(other.output, HasSubstr("WRONG in B"));
}

TEST_F(Bench, PortabilityIsAPageAboutTheMachineOnItsRanks) {
  const std::string command =
      "cd '" + folder_.string() + "' && " + mpiexec(2) + " '" + PLEAT_PROGRAM +
      "' bench small.toml --portability --seconds 0.2" + " --json page.json >out 2>&1";
  const int status = std::system(command.c_str());
  const std::string page = io::read_small_file(path("out"));
  ASSERT_EQ(WEXITSTATUS(status), 0) << page;
  EXPECT_THAT(page,
              AllOf(HasSubstr("device"), HasSubstr("ranks          2, 1 threads each"),
                    HasSubstr("products bf16"), HasSubstr("attention bf16"),
                    HasSubstr("router, softmax dlogits"),
                    HasSubstr("gemm weight gradient"), Not(HasSubstr("swiglu forward")),
                    HasSubstr("all-to-all-v"), HasSubstr("exchange")));
  const bench::Report found = report("page.json");
  EXPECT_EQ(found.kernels.size(), 3U * 5U);
  EXPECT_EQ(found.exchanges.size(), 5U * 5U);
  EXPECT_GT(bench::peak_of(found.peaks, "exchange"), 0.0);
}

TEST_F(Bench, VerifyBeginsWithThePageAndKeepsIt) {
  const std::string verify = "verify small.toml --steps 1 --json page.json --seconds ";
  const CommandResult verified = pleat(verify + "0.1");
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
  const std::size_t page = verified.output.find("kernels against stored answers");
  EXPECT_LT(page, verified.output.find("1 steps of 'small.toml'")) << verified.output;
  EXPECT_THAT(verified.output,
              AllOf(HasSubstr("products fp64"), HasSubstr("router, softmax dlogits"),
                    HasSubstr("measured peaks of a rank"), HasSubstr("gemm weight gradient"),
                    Not(HasSubstr("swiglu forward"))));
  EXPECT_EQ(report("page.json").kernels.size(), 3U * 5U);
  const CommandResult same = pleat("bench --compare page.json page.json");
  EXPECT_EQ(same.exit_code, 0) << same.output;
  EXPECT_THAT(same.output, HasSubstr("CORRECT on both"));

  const CommandResult again = pleat(verify + "0.1");
  EXPECT_EQ(again.exit_code, 2) << again.output;
  EXPECT_THAT(again.output, AllOf(HasSubstr("PL0920"), Not(HasSubstr("machine"))));
  EXPECT_EQ(pleat(verify + "0 --force").exit_code, 0);
  EXPECT_TRUE(report("page.json").kernels.empty());
}

TEST_F(Bench, VerifyWithoutRates) {
  const CommandResult verified = pleat("verify small.toml --steps 1 --seconds 0");
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
  EXPECT_THAT(verified.output,
              AllOf(HasSubstr("kernels against stored answers"), Not(HasSubstr("peaks"))));
}

TEST_F(Bench, MistakesAreBadInput) {
  write("a.json", "{}");
  for (const auto& [arguments, text] :
       {std::pair("bench --compare a.json", "--compare"),
        {"bench --compare a.json a.json", "PL0960"},
        {"bench --compare no.json a.json", "PL0401"},
        {"bench small.toml --compare a.json a.json", "PL0901"},
        {"bench --compare a.json a.json --force", "PL0901"},
        {"bench --json /dev/null --force", "PL0920"},
        {"bench --seconds nan", "--seconds"},
        {"bench --seconds 0", "--seconds"},
        {"bench --json ''", "--json"},
        {"bench --json a.json", "PL0920"},
        {"bench --json no/a.json", "PL0921"},
        {"bench no.toml", "PL0201"}}) {
    const CommandResult result = pleat(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments << "\n" << result.output;
    EXPECT_THAT(result.output, HasSubstr(text)) << arguments;
  }
  EXPECT_EQ(io::read_small_file(path("a.json")), "{}");
}

}  // namespace
}  // namespace pleat::test
