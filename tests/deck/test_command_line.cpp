// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The program as a user meets it: help, mistakes, exit codes, one message each.
#include <sys/wait.h>
#include <algorithm>
#include <cstdio>

#include <gmock/gmock.h>

#include "deck/deck_test.hpp"

namespace pleat::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  int exit_code = -1;
  std::string output;
  std::string errors;
};

class CommandLineTest : public ScratchFolder {
 protected:
  /// \param in  the working directory; the scratch folder where it is empty
  Outcome run(const std::string& arguments, const std::string& in = "") const {
    const std::string out = (folder_ / "out").string();
    const std::string err = (folder_ / "err").string();
    const std::string command = "cd '" + (in.empty() ? folder_.string() : in) +
                                "' && " PLEAT_PROGRAM " " + arguments + " >'" + out +
                                "' 2>'" + err + "'";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(out), read_text(err)};
  }
  void expect_bad_input(const std::string& arguments, const std::string& text) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_THAT(outcome.errors, AllOf(StartsWith("pleat: PL0"), HasSubstr(text)))
        << arguments;
    EXPECT_EQ(outcome.output, "") << arguments;
  }
};

TEST_F(CommandLineTest, HelpOfEveryCommand) {
  const Outcome help = run("--help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(run("").output, help.output);
  for (const char* name :
       {"train", "check", "map", "params", "convert", "inspect", "generate", "bench"}) {
    EXPECT_THAT(help.output, HasSubstr(name));
    const Outcome own = run(std::string(name) + " --help");
    EXPECT_EQ(own.exit_code, 0) << name;
    EXPECT_THAT(own.output, HasSubstr(std::string("Usage: pleat ") + name));
    EXPECT_EQ(own.errors, "");
  }
}

TEST_F(CommandLineTest, Version) {
  EXPECT_THAT(run("--version").output, StartsWith("pleat 0."));
}

TEST_F(CommandLineTest, MistakesOfTheCommandLine) {
  expect_bad_input("trian", "PL0901");
  expect_bad_input("train", "deck is required");
  expect_bad_input("train deck.toml --fast", "--fast");
  expect_bad_input("params extra", "PL0901");
  for (const char* number : {"nan", "NaN", "inf"}) {
    expect_bad_input(std::string("generate a.h5 --temperature ") + number, "--temperature");
    expect_bad_input(std::string("verify try.toml --tolerance ") + number, "--tolerance");
  }
  expect_bad_input("--nonsense", "HINT: see 'pleat --help'.");
}

// In a few words, not with the largest number of all.
TEST_F(CommandLineTest, NumbersOutOfRange) {
  for (const char* number : {"0", "-1", "abc", "1s", "", "inf"}) {
    const std::string got = std::string(", got '") + number + "'";
    const std::string value = std::string(" '") + number + "'";
    expect_bad_input("bench --seconds" + value, "--seconds: expected a number above 0" + got);
    expect_bad_input("verify try.toml --tolerance" + value,
                     "--tolerance: expected a number above 0, at most 1" + got);
    expect_bad_input("generate a.h5 --tokens" + value,
                     "--tokens: expected a whole number above 0" + got);
    expect_bad_input("generate a.h5 --context" + value,
                     "--context: expected a whole number above 0" + got);
    if (std::string(number) == "0") continue;
    expect_bad_input("verify try.toml --seconds" + value,
                     "--seconds: expected 0 or a number above it" + got);
    expect_bad_input("generate a.h5 --temperature" + value,
                     "--temperature: expected 0 or a number above it" + got);
    expect_bad_input("generate a.h5 --top-k" + value,
                     "--top-k: expected 0 or a whole number above it" + got);
    expect_bad_input("map try.toml --ranks 2 --rank" + value,
                     "--rank: expected 0 or a whole number above it" + got);
  }
  expect_bad_input("verify try.toml --tolerance 1e300", "at most 1, got '1e300'");
  expect_bad_input("generate a.h5 --tokens 1.5", "a whole number above 0, got '1.5'");
}

// What a shell makes of a variable that is not set, and what asks for nothing.
TEST_F(CommandLineTest, FilesWithoutNames) {
  for (const char* command : {"bench --json ''", "verify try.toml --json ''",
                              "map try.toml --ranks 1 --svg ''",
                              "batch try.toml --time 1h --output ''"}) {
    expect_bad_input(command, "expected the name of a file, got ''");
  }
  expect_bad_input("bench --force", "--force requires --json");
  expect_bad_input("verify try.toml --force", "--force requires --json");
  expect_bad_input("batch try.toml --time 1h --force", "--force requires --output");
}

TEST_F(CommandLineTest, MistakesOfTheDeck) {
  for (const std::string command : {"train", "check"}) {
    expect_bad_input(command + " absent.toml", "there is no deck 'absent.toml'");
    write("try.toml", "[run]\nsteps = 1\nstps = 2\n");
    expect_bad_input(command + " try.toml", "try.toml:3: unknown key 'run.stps'");
    write("try.toml", "[run]\nsteps = 1\n");
    expect_bad_input(command + " try.toml run.stps=3", "override 'run.stps=3'");
  }
  // Nothing was written beside the deck and the two captured streams.
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    EXPECT_THAT(file.path().filename().string(),
                testing::AnyOf("out", "err", "try.toml"));
  }
}

TEST_F(CommandLineTest, TheDeckOfTheReadmeIsSound) {
  const std::string source = PLEAT_SOURCE_DIR;
  const std::string readme = read_text(source + "/README.md");
  const std::string begin = "```toml\n";
  const std::size_t at = readme.find(begin);
  ASSERT_NE(at, std::string::npos);
  const std::size_t first = at + begin.size();
  const std::string deck = readme.substr(first, readme.find("```", first) - first);
  EXPECT_EQ(std::count(deck.begin(), deck.end(), '\n'), 10) << "a deck in ten lines";
  // Its paths are relative to the working directory, which is that of the clone.
  const std::string file = write("novel.toml", deck);
  const Outcome outcome = run("check '" + file + "'", source);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
}

TEST_F(CommandLineTest, ParamsWritesTheDocumentation) {
  EXPECT_EQ(run("params --markdown").output,
            read_text(std::string(PLEAT_SOURCE_DIR) + "/docs/decks.md"));
  const Outcome table = run("params");
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.output, AllOf(HasSubstr("[optimizer]"), HasSubstr("aux_loss.coeff")));
}

}  // namespace
}  // namespace pleat::test
