// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Decks as users write them: defaults, keys that contradict each other, resolved
/// deck.
#include <gmock/gmock.h>

#include "deck/deck_test.hpp"
#include "deck/run_deck.hpp"

namespace pleat::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class RunConfigTest : public RunDeckTest {};

TEST_F(RunConfigTest, DefaultsFollowTheStructs) {
  const train::RunConfig config = load(kSmallDeck);
  const train::OptimizerSection optimizer;
  EXPECT_EQ(config.run.name, "pleat");
  EXPECT_EQ(config.run.output, "runs/pleat");
  EXPECT_EQ(config.run.seed, 1u);
  EXPECT_EQ(config.batch.micro, 1);
  EXPECT_EQ(config.batch.global, 1);
  EXPECT_EQ(config.optimizer.lr, optimizer.lr);
  EXPECT_EQ(config.optimizer.beta2, optimizer.beta2);
  EXPECT_EQ(config.optimizer.schedule, train::Schedule::kCosine);
  EXPECT_EQ(config.precision.compute, train::Precision::kFp32);
  EXPECT_EQ(config.checkpoint.resume, "auto");
  EXPECT_EQ(config.data.tokenizer, "bytes");
  EXPECT_TRUE(config.data.shuffle);
}

TEST_F(RunConfigTest, DefaultsThatFollowFromOtherKeys) {
  const train::RunConfig config =
      load(kSmallDeck, {"run.name=other", "batch.micro=4", "model.heads=8"});
  EXPECT_EQ(config.run.output, "runs/other");
  EXPECT_EQ(config.batch.global, 4);
  EXPECT_EQ(config.model.kv_heads, 8);
  EXPECT_EQ(config.model.head_dim, 8);
}

TEST_F(RunConfigTest, EveryChoice) {
  const train::RunConfig config =
      load(kSmallDeck, {"optimizer.schedule=linear", "precision.compute=fp64",
                        "precision.recompute=selective", "data.format=megatron",
                        "data.path=x", "moe.score=softmax_after_top_k",
                        "moe.aux_loss.scope=sequence", "model.family=qwen3_moe"});
  EXPECT_EQ(config.optimizer.schedule, train::Schedule::kLinear);
  EXPECT_EQ(config.precision.compute, train::Precision::kFp64);
  EXPECT_EQ(config.precision.recompute, train::Recompute::kSelective);
  EXPECT_EQ(config.data.format, io::DataFormat::kMegatron);
  EXPECT_THAT(config.data.paths, ElementsAre("x"));
  EXPECT_EQ(config.model.moe.score, plan::RouterScore::kSoftmaxAfterTopK);
  EXPECT_EQ(config.model.moe.auxiliary_scope, plan::AuxiliaryScope::kSequence);
  EXPECT_EQ(config.model.family, plan::Family::kQwen3Moe);
}

TEST_F(RunConfigTest, Contradictions) {
  const std::pair<const char*, const char*> cases[] = {
      {"batch.micro=3 batch.global=4",
       "batch.global = 4 is not a multiple of batch.micro = 3"},
      {"optimizer.warmup=11", "optimizer.warmup = 11 is more than run.steps = 10"},
      {"optimizer.min_lr=1", "optimizer.min_lr = 1 is more than optimizer.lr"},
      {"output.gradients_at=[1,11]", "step 11 is beyond run.steps = 10"},
      {"validation.every=5", "data.split = 0 holds nothing out"},
      {"data.weights=[1,2]", "data.weights has 2 entries for 0 sources"},
      {"model.heads=5", "model.hidden = 64 is not a multiple of model.heads = 5"},
      {"moe.dense_layers=[2]", "there is no layer 2, expected 0 to 1"},
      {"moe.dense_layers=[0,1,0]", "moe.dense_layers: layer 0 is given twice"},
      {"parallel.chunks=2", "parallel.chunks = 2 needs parallel.schedule"},
      {"parallel.schedule=interleaved", "but parallel.pipeline = 1"},
      {"parallel.schedule=interleaved parallel.chunks=1 parallel.pipeline=2",
       "parallel.chunks of at least 2, found 1"}};
  for (const auto& [overrides, text] : cases) {
    EXPECT_THAT(complaint([&, o = overrides] { load(kSmallDeck, words(o)); }),
                AllOf(StartsWith("PL0209: override "), HasSubstr(text)))
        << overrides;
  }
}

// Beyond it no file system has room for the gaps between the tensors.
TEST_F(RunConfigTest, TheLargestAlignmentOfCheckpoints) {
  EXPECT_EQ(load(kSmallDeck, {"checkpoint.alignment=1073741824"}).checkpoint.hints.alignment,
            1073741824);
  EXPECT_THAT(complaint([&] { load(kSmallDeck, {"checkpoint.alignment=1073741825"}); }),
              AllOf(StartsWith("PL0206: "), HasSubstr("0 to 1073741824")));
}

// MPI-IO takes it for an int, and ends the job where that is negative.
TEST_F(RunConfigTest, TheLargestBufferOfCheckpoints) {
  EXPECT_EQ(load(kSmallDeck, {"checkpoint.buffer=1073741824"}).checkpoint.hints.buffer_bytes,
            1073741824);
  EXPECT_THAT(complaint([&] { load(kSmallDeck, {"checkpoint.buffer=2147483648"}); }),
              AllOf(StartsWith("PL0206: "), HasSubstr("0 to 1073741824")));
}

TEST_F(RunConfigTest, ContradictionsInTheDeckNameTheLine) {
  const std::string deck =
      "[batch]\nmicro = 3\nsequence = 8\nglobal = 4\n[run]\nsteps = 1\n"
      "[model]\npreset = \"mixtral-8x7b\"\n[data]\n"
      "format = \"synthetic\"\n";
  EXPECT_THAT(complaint([&] { load(deck); }),
              AllOf(StartsWith("PL0209: "), HasSubstr("try.toml:4: batch.global = 4")));
}

TEST_F(RunConfigTest, MissingKeysAndNames) {
  EXPECT_THAT(complaint([&] { load(kSmallDeck, {"data.format=text"}); }),
              AllOf(StartsWith("PL0208: "), HasSubstr("data.path: missing")));
  EXPECT_THAT(complaint([&] {
                load(kSmallDeck, {"data.format=hdf5", "data.path=x", "data.dataset="});
              }),
              AllOf(StartsWith("PL0208: "), HasSubstr("data.dataset: missing")));
  for (const char* name : {"run.name=a/b", "run.name=..", "run.name=", "run.name=a b"}) {
    EXPECT_THAT(complaint([&] { load(kSmallDeck, {name}); }),
                AllOf(StartsWith("PL0206: "), HasSubstr("run.name: found")));
  }
}

TEST_F(RunConfigTest, DivisorsMustNotVanishInThePrecisionOfTheRun) {
  for (const std::string key : {"optimizer.eps=", "model.norm_eps="}) {
    for (const char* number : {"1e-50", "1e-39", "1e+39"}) {  // the second is subnormal
      for (const char* precision : {"precision.compute=fp32", "precision.compute=bf16"}) {
        EXPECT_THAT(complaint([&] { load(kSmallDeck, {key + number, precision}); }),
                    AllOf(StartsWith("PL0206: override '" + key), HasSubstr("1.18e-38"),
                          HasSubstr(fmt::format("found {}", number)), HasSubstr("fp32")));
      }
      load(kSmallDeck, {key + number, "precision.compute=fp64"});
    }
    load(kSmallDeck, {key + "1.2e-38"});
    EXPECT_THAT(complaint([&] {
                  load(kSmallDeck, {key + "1e-309", "precision.compute=fp64"});
                }),
                AllOf(StartsWith("PL0206: override '" + key), HasSubstr("2.23e-308")));
  }
}

TEST_F(RunConfigTest, PathsAreFoundBesideTheDeck) {
  const std::string file = write("data/text.txt", "abc");
  const train::RunConfig config =
      load(kSmallDeck, {"data.format=text", "data.path=data/text.txt", "run.output=out",
                        "checkpoint.resume=data/text.txt"});
  EXPECT_THAT(config.data.paths, ElementsAre(file));
  EXPECT_EQ(config.checkpoint.resume, file);
  EXPECT_EQ(config.run.output, "out");
}

TEST_F(RunConfigTest, ResolvedDeckIsTheSameRun) {
  const train::RunConfig first =
      load(kSmallDeck, {"optimizer.lr=0.00123", "output.gradients_at=[1,3]",
                        "moe.dense_layers=1", "model.ffn=96", "data.path=[\"a\",\"b\"]"});
  const train::RunConfig second = load(first.resolved_deck);
  EXPECT_EQ(second.resolved_deck, first.resolved_deck);
  EXPECT_EQ(second.optimizer.lr, 0.00123);
  EXPECT_THAT(second.output.gradients_at, ElementsAre(1, 3));
  EXPECT_THAT(second.model.moe_layer, ElementsAre(true, false));
  // Each key stands in it once.
  train::DeckFields fields;
  const io::DeckKeys keys = train::declare_deck_keys(fields);
  for (const io::DeckEntry& entry : keys.entries()) {
    EXPECT_THAT(first.resolved_deck,
                HasSubstr(fmt::format("\n{} = ", entry.name_in_section())));
  }
}

TEST_F(RunConfigTest, DocumentationIsTheGeneratedText) {
  const std::string file = std::string(PLEAT_SOURCE_DIR) + "/docs/decks.md";
  EXPECT_EQ(read_text(file), train::deck_reference_markdown())
      << "write it again: build/pleat params --markdown > docs/decks.md";
}

TEST_F(RunConfigTest, EveryKeyHasAMeaning) {
  train::DeckFields fields;
  const io::DeckKeys keys = train::declare_deck_keys(fields);
  for (const io::DeckEntry& entry : keys.entries()) {
    EXPECT_FALSE(entry.key.meaning.empty()) << entry.key.name;
    EXPECT_EQ(entry.key.meaning.find('\n'), std::string::npos) << entry.key.name;
  }
  for (const io::DeckSection& section : keys.sections()) {
    EXPECT_FALSE(keys.names_in(section.name).empty()) << section.name;
  }
}

}  // namespace
}  // namespace pleat::test
