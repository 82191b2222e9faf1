// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief What a continued run makes of a deck that changed.
#include "pleat/train/deck_changes.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include <gmock/gmock.h>

#include "deck/run_deck.hpp"

namespace pleat::test {
namespace {

using io::Restart;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using train::DeckChange;
using train::deck_changes;
using train::require_continuable;

/// "key: before -> now class".
std::vector<std::string> lines(const std::vector<DeckChange>& changes) {
  std::vector<std::string> texts;
  for (const DeckChange& change : changes) {
    const char* word = change.restart == Restart::kFree    ? "free"
                       : change.restart == Restart::kWarns ? "warns"
                                                           : "refused";
    texts.push_back(change.key + ": " + change.before + " -> " + change.now + " " + word);
  }
  return texts;
}

class DeckChangesTest : public RunDeckTest {
 protected:
  DeckChangesTest() : stream_(std::tmpfile()), log_(true, stream_) {}
  ~DeckChangesTest() override { std::fclose(stream_); }

  std::string resolved(const std::string& overrides = "") const {
    return load(kSmallDeck, words(overrides)).resolved_deck;
  }
  std::vector<std::string> changed(const std::string& overrides) const {
    return lines(deck_changes(resolved(), resolved(overrides)));
  }
  std::string said() const {
    std::rewind(stream_);
    std::string text;
    for (int c = std::fgetc(stream_); c != EOF; c = std::fgetc(stream_)) {
      text.push_back(static_cast<char>(c));
    }
    return text;
  }

  std::FILE* stream_;
  Log log_;
};

TEST_F(DeckChangesTest, TheSameDeckHasNone) {
  EXPECT_THAT(changed(""), IsEmpty());
}

TEST_F(DeckChangesTest, AnEmptyDeckHasNone) {
  EXPECT_THAT(deck_changes("", resolved()), IsEmpty());
}

TEST_F(DeckChangesTest, KeysComeInTheOrderOfDeclarationWithTheirClass) {
  EXPECT_THAT(changed("checkpoint.every=5 optimizer.lr=1e-3 model.hidden=128 run.steps=20 "
                      "model.head_dim=16 output.gradients_at=[1,2]"),
              ElementsAre("run.steps: 10 -> 20 warns", "model.hidden: 64 -> 128 refused",
                          "optimizer.lr: 0.0003 -> 0.001 warns",
                          "checkpoint.every: 0 -> 5 free",
                          "output.gradients_at: [] -> [1, 2] free"));
}

TEST_F(DeckChangesTest, ValuesAreComparedAndNotTheirSpelling) {
  const std::string one =
      "[optimizer]\nlr = 1e-3\nclip = 1\n[data]\npath = \"a\"\nweights = [1, 2.50]\n"
      "[moe]\naux_loss.coeff = 0\ndense_layers = [ 1, 2 ]\n";
  const std::string other =
      "[moe]\ndense_layers = [1,2]\n[moe.aux_loss]\ncoeff = -0.0\n"
      "[data]\nweights = [1.0, 2.5]\npath = [\"a\"]\n"
      "[optimizer]\nclip = 1.0\nlr = 0.001\n";
  EXPECT_THAT(deck_changes(one, other), IsEmpty());
}

TEST_F(DeckChangesTest, OneElementOfAListCounts) {
  EXPECT_THAT(lines(deck_changes("[moe]\ndense_layers = [0, 2]", "[moe]\ndense_layers = [0, 1]")),
              ElementsAre("moe.dense_layers: [0, 2] -> [0, 1] refused"));
}

TEST_F(DeckChangesTest, AKeyThatAnOlderVersionLacksHadItsDefault) {
  const std::string older = "[run]\nsteps = 10\n[optimizer]\nclip = 1.0\n";
  EXPECT_THAT(deck_changes(older, "[run]\nsteps = 10\nwatchdog = 0\n"), IsEmpty());
  EXPECT_THAT(lines(deck_changes(older, "[run]\nsteps = 10\nwatchdog = 60\n")),
              ElementsAre("run.watchdog: 0 -> 60 free"));
  // And one that the new deck lacks.
  EXPECT_THAT(lines(deck_changes("[optimizer]\nclip = 2.0\n", "[run]\nsteps = 10\n")),
              ElementsAre("optimizer.clip: 2.0 -> 1.0 warns"));
}

// What a missing key was then is nowhere written.
TEST_F(DeckChangesTest, AMissingKeyWhoseDefaultFollowsFromOthersIsLeftOut) {
  EXPECT_THAT(deck_changes("[run]\nsteps = 10", "[batch]\nglobal = 8"), IsEmpty());
}

TEST_F(DeckChangesTest, KeysThatThisProgramDoesNotKnowAreLeftOut) {
  const std::string newer = resolved() + "\n[future]\nspeed = 9\n";
  EXPECT_THAT(deck_changes(newer, resolved()), IsEmpty());
}

TEST_F(DeckChangesTest, AValueThatThisProgramDoesNotKnowDiffersFromAllItKnows) {
  EXPECT_THAT(lines(deck_changes("[model]\nfamily = \"mistral9\"", resolved())),
              testing::Contains("model.family: \"mistral9\" -> \"mixtral\" refused"));
  EXPECT_THAT(lines(deck_changes("[moe]\ntop_k = \"many\"", "[moe]\ntop_k = 2")),
              ElementsAre("moe.top_k: \"many\" -> 2 refused"));
}

TEST_F(DeckChangesTest, ADeckThatIsNoTomlIsNamed) {
  EXPECT_THAT(complaint([&] { deck_changes("[run\n", resolved()); }),
              HasSubstr("deck of the checkpoint"));
}

TEST_F(DeckChangesTest, AFileThatMovedWeighsOneClassLess) {
  const auto change = [](const std::string& key, const std::string& a, const std::string& b) {
    return lines(deck_changes("[data]\n" + key + " = " + a, "[data]\n" + key + " = " + b));
  };
  EXPECT_THAT(change("path", R"("/old/a.txt")", R"("/new/a.txt")"),
              ElementsAre(R"(data.path: ["/old/a.txt"] -> ["/new/a.txt"] free)"));
  EXPECT_THAT(change("path", R"("/old/a.txt")", R"("/old/b.txt")"),
              ElementsAre(testing::EndsWith("warns")));
  EXPECT_THAT(change("path", R"(["/old/a", "/old/b"])", R"(["/new/a", "/new/b"])"),
              ElementsAre(testing::EndsWith("free")));
  EXPECT_THAT(change("path", R"(["/old/a", "/old/b"])", R"(["/new/b", "/new/a"])"),
              ElementsAre(testing::EndsWith("warns")));
  EXPECT_THAT(change("tokenizer", R"("/old/t.model")", R"("t.model")"),
              ElementsAre(testing::EndsWith("warns")));
  EXPECT_THAT(change("tokenizer", R"("/old/t.model")", R"("bytes")"),
              ElementsAre(testing::EndsWith("refused")));
  // The name of a data set in a file is no path.
  EXPECT_THAT(change("dataset", R"("a/tokens")", R"("b/tokens")"),
              ElementsAre(testing::EndsWith("warns")));
}

TEST_F(DeckChangesTest, ARateOfTheRouterBiasMayChangeButNotComeOrGo) {
  EXPECT_THAT(changed("moe.bias_update_rate=0.1"),
              ElementsAre("moe.bias_update_rate: 0.0 -> 0.1 refused"));
  EXPECT_THAT(lines(deck_changes(resolved("moe.bias_update_rate=0.1"), resolved())),
              ElementsAre("moe.bias_update_rate: 0.1 -> 0.0 refused"));
  EXPECT_THAT(lines(deck_changes(resolved("moe.bias_update_rate=0.1"),
                                 resolved("moe.bias_update_rate=0.2"))),
              ElementsAre("moe.bias_update_rate: 0.1 -> 0.2 warns"));
}

// Every key that is declared has a class here, so that a new one is thought about.
TEST_F(DeckChangesTest, EveryKeyHasTheClassThatItShould) {
  const std::map<std::string, Restart> sections{
      {"model", Restart::kRefused},   {"moe", Restart::kRefused},
      {"parallel", Restart::kFree},   {"batch", Restart::kWarns},
      {"optimizer", Restart::kWarns}, {"precision", Restart::kWarns},
      {"data", Restart::kWarns},      {"validation", Restart::kFree},
      {"checkpoint", Restart::kFree}, {"guard", Restart::kWarns},
      {"output", Restart::kFree},     {"run", Restart::kFree}};
  const std::map<std::string, Restart> exceptions{
      {"run.seed", Restart::kRefused},
      {"run.steps", Restart::kWarns},
      {"model.init", Restart::kWarns},
      {"model.preset", Restart::kFree},
      {"model.init_std", Restart::kWarns},
      {"moe.aux_loss.coeff", Restart::kWarns},
      {"moe.aux_loss.scope", Restart::kWarns},
      {"moe.z_loss", Restart::kWarns},
      {"moe.bias_update_rate", Restart::kWarns},
      {"moe.drop.capacity_factor", Restart::kWarns},
      {"moe.drop.scope", Restart::kWarns},
      {"moe.drop.policy", Restart::kWarns},
      {"moe.drop.pad", Restart::kWarns},
      {"batch.sequence", Restart::kRefused},
      {"precision.recompute", Restart::kFree},
      {"data.format", Restart::kRefused},
      {"data.tokenizer", Restart::kRefused},
      {"data.shuffle", Restart::kRefused},
      {"data.split", Restart::kRefused},
      {"data.synthetic_samples", Restart::kRefused},
      {"guard.most", Restart::kFree}};
  train::DeckFields fields;
  const io::DeckKeys keys = train::declare_deck_keys(fields);
  for (const io::DeckEntry& entry : keys.entries()) {
    const auto special = exceptions.find(entry.key.name);
    const Restart expected =
        special != exceptions.end() ? special->second : sections.at(entry.section());
    EXPECT_EQ(entry.key.restart, expected) << entry.key.name;
  }
  for (const auto& [name, restart] : exceptions) EXPECT_NE(keys.find(name), nullptr) << name;
}

// Of a deck that was resolved, each single key that is refused ends the run.
TEST_F(DeckChangesTest, EachRefusedKeyByItselfIsRefused) {
  for (const char* change :
       {"run.seed=2", "model.layers=3", "model.rope_theta=5", "model.tied=true",
        "model.family=qwen3_moe", "moe.experts=8", "moe.top_k=1", "moe.ffn=16",
        "moe.normalize=false", "moe.score=sigmoid", "moe.dense_layers=[0] model.ffn=8",
        "batch.sequence=8", "data.shuffle=false", "data.split=0.5",
        "data.synthetic_samples=7"}) {
    const auto changes = deck_changes(resolved(), resolved(change));
    EXPECT_THAT(complaint([&] { require_continuable("c.h5", changes, log_); }),
                HasSubstr("PL0732"))
        << change;
  }
  EXPECT_EQ(said(), "");
}

TEST_F(DeckChangesTest, FreeKeysAreNamedInOneLine) {
  require_continuable(
      "c.h5", deck_changes(resolved(), resolved("run.name=b checkpoint.every=5")), log_);
  EXPECT_EQ(said(),
            "changed since the checkpoint: run.name was \"pleat\", is \"b\"; run.output was "
            "\"runs/pleat\", is \"runs/b\"; checkpoint.every was 0, is 5\n");
}

TEST_F(DeckChangesTest, WarningsComeOneByOne) {
  require_continuable(
      "c.h5", deck_changes(resolved(), resolved("optimizer.lr=1 batch.micro=2 batch.global=2")),
      log_);
  const std::string text = said();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, AllOf(HasSubstr("WARNING: optimizer.lr was 0.0003, is 1.0"),
                          HasSubstr("WARNING: batch.micro was 1, is 2"),
                          HasSubstr("no longer the one that was begun")));
}

TEST_F(DeckChangesTest, WithoutChangesNothingIsSaid) {
  require_continuable("c.h5", {}, log_);
  EXPECT_EQ(said(), "");
}

TEST_F(DeckChangesTest, ARefusalListsAllDifferencesAndHowToSetThemBack) {
  const auto changes = deck_changes(
      resolved(), resolved("run.seed=2 optimizer.lr=1 run.name=b model.family=qwen3_moe"));
  const std::string text =
      complaint([&] { require_continuable("runs/a/c.h5", changes, log_); });
  EXPECT_THAT(text, AllOf(HasSubstr("'runs/a/c.h5'"), HasSubstr("\n  refused  run.seed was 1, is 2\n"),
                          HasSubstr("\n  warns    optimizer.lr was 0.0003, is 1.0\n"),
                          HasSubstr("\n  free     run.name was \"pleat\", is \"b\"\n"),
                          HasSubstr("of which 2 would"), HasSubstr("HINT: ")));
  EXPECT_THAT(text, AllOf(HasSubstr("run.output"), HasSubstr("checkpoint.resume=none")));
  EXPECT_THAT(text, HasSubstr("set back what is refused: run.seed=1 'model.family=\"mixtral\"'"));
  EXPECT_EQ(said(), "");
}

// The words of the hint, given as overrides, lead back to a deck that goes on.
TEST_F(DeckChangesTest, WhatTheHintSaysHelps) {
  const auto changes = deck_changes(resolved(), resolved("run.seed=2 model.heads=8"));
  const std::string text = complaint([&] { require_continuable("c.h5", changes, log_); });
  const std::string start = "set back what is refused: ";
  const std::size_t begin = text.find(start) + start.size();
  const std::string back = text.substr(begin, text.find('\n', begin) - begin);
  EXPECT_THAT(deck_changes(resolved(), resolved("run.seed=2 model.heads=8 " + back)), IsEmpty());
}

}  // namespace
}  // namespace pleat::test
