// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Bad input gives one clear message and exit code 2, and leaves nothing behind.

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "failure/failure_deck.hpp"
#include "failure/messages.hpp"
#include "pleat/io/hdf5.hpp"
#include "support/as_nobody.hpp"
#include "support/golden_deck.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

namespace fs = std::filesystem;

class BadInput : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write("deck.toml", kSoundDeck);
  }

  /// The command fails as bad input does, says each of the phrases, and writes nothing.
  void expect_refused(const std::string& arguments, const std::vector<std::string>& phrases) {
    const auto before = listing();
    const CommandResult run = pleat(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments << "\n" << run.output;
    for (const std::string& phrase : phrases) {
      EXPECT_NE(run.output.find(phrase), std::string::npos)
          << arguments << "\nexpected '" << phrase << "' in:\n" << run.output;
    }
    EXPECT_EQ(count(run.output, "pleat: PL"), 1) << run.output;
    EXPECT_EQ(listing(), before) << arguments;
  }

  void expect_refused_override(const std::string& overrides,
                               const std::vector<std::string>& phrases) {
    expect_refused("train deck.toml " + overrides, phrases);
  }

  std::vector<std::string> listing() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      names.push_back(entry.path().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  void copy_golden_model(const std::string& name) {
    fs::copy(golden_folder("mixtral-tiny"), path(name));
  }
};

TEST_F(BadInput, TheDeckItselfIsSound) {
  const CommandResult run = pleat("train deck.toml");
  EXPECT_EQ(run.exit_code, 0) << run.output;
}

TEST_F(BadInput, Keys) {
  expect_refused_override("optimizer.learning_rat=1", {"learning_rat", "unknown"});
  expect_refused_override("optimizer.warmpu=1", {"warmpu", "optimizer.warmup"});
  expect_refused_override("run.steps=many", {"run.steps", "many"});
  expect_refused_override("run.steps=-1", {"run.steps", "-1"});
  expect_refused_override("optimizer.beta1=1.5", {"optimizer.beta1", "1.5"});
  expect_refused_override("optimizer.schedule=cosinus", {"cosinus", "cosine"});
  expect_refused_override("precision.compute=fp31", {"fp31", "fp32"});
}

TEST_F(BadInput, KeysInTheFileNameTheLine) {
  write("broken.toml", "[run]\nsteps = 3\nsede = 4\n");
  expect_refused("train broken.toml", {"broken.toml:3", "run.sede", "seed"});
  write("twice.toml", "[run]\nsteps = 3\nsteps = 4\n");
  expect_refused("train twice.toml", {"twice.toml:3"});
  write("syntax.toml", "[run\nsteps = 3\n");
  expect_refused("train syntax.toml", {"syntax.toml:1"});
  expect_refused("train nowhere.toml", {"nowhere.toml"});
}

TEST_F(BadInput, Shapes) {
  expect_refused_override("model.heads=5", {"heads", "5"});
  expect_refused_override("model.kv_heads=3", {"kv_heads", "3"});
  expect_refused_override("model.head_dim=7", {"head_dim", "7"});
  expect_refused_override("moe.top_k=5", {"top_k", "5", "experts"});
  expect_refused_override("batch.global=3", {"global", "3", "micro"});
  expect_refused_override("parallel.tensor=2", {"parallel.tensor"});
}

TEST_F(BadInput, TextData) {
  expect_refused_override("data.format=text data.path=nowhere.txt", {"nowhere.txt"});
  write("empty.txt", "");
  expect_refused_override("data.format=text data.path=empty.txt", {"empty.txt", "empty"});
  write("short.txt", "0123456789");
  expect_refused_override("data.format=text data.path=short.txt", {"short.txt"});
  write("bytes.txt", std::string(400, '~'));
  expect_refused_override("data.format=text data.path=bytes.txt model.vocab=100",
                          {"bytes.txt", "126", "100"});
}

void write_token_sets(io::Hdf5Group root) {
  std::vector<std::int32_t> tokens(4 * 17, 5);
  root.write_dataset<std::int32_t>("good", {4, 17}, tokens);
  root.write_dataset<std::int32_t>("narrow", {4, 16}, std::span(tokens).first(64));
  tokens[20] = 300;
  root.write_dataset<std::int32_t>("large", {4, 17}, tokens);
  tokens[20] = -1;
  root.write_dataset<std::int32_t>("negative", {4, 17}, tokens);
  root.write_dataset<double>("real", {4, 17}, std::vector<double>(4 * 17, 1.0));
}

TEST_F(BadInput, Hdf5Data) {
  const std::string options = "data.format=hdf5 data.path=tokens.h5 data.dataset=";
  io::Hdf5File file = io::Hdf5File::create(path("tokens.h5"), MPI_COMM_SELF);
  write_token_sets(file.root());
  file.close();
  expect_refused_override(options + "absent", {"tokens.h5", "absent", "good"});
  expect_refused_override(options + "narrow", {"narrow", "16", "17"});
  expect_refused_override(options + "large", {"tokens.h5", "300", "256"});
  expect_refused_override(options + "negative", {"tokens.h5", "-1"});
  expect_refused_override(options + "real", {"real"});
  fs::resize_file(path("tokens.h5"), fs::file_size(path("tokens.h5")) / 2);
  expect_refused_override(options + "good", {"tokens.h5"});
  write("tokens.h5", "this is no HDF5 file");
  expect_refused_override(options + "good", {"tokens.h5"});
}

TEST_F(BadInput, HuggingFaceFolders) {
  write("hf.toml", "[run]\nsteps = 1\noutput = \"out\"\n[batch]\nsequence = 16\n"
                   "[data]\nformat = \"synthetic\"\n");
  expect_refused("train hf.toml model.init=hf", {"hf"});
  copy_golden_model("hf");
  ASSERT_EQ(pleat("train hf.toml model.init=hf run.output=sound").exit_code, 0);
  fs::remove_all(path("sound"));

  fs::resize_file(path("hf/model.safetensors"), 300000);
  expect_refused("train hf.toml model.init=hf", {"model.safetensors"});
  fs::resize_file(path("hf/model.safetensors"), 5);
  expect_refused("train hf.toml model.init=hf", {"model.safetensors"});
  fs::copy_file(golden_folder("qwen3moe-tiny") + "/model.safetensors",
                path("hf/model.safetensors"), fs::copy_options::overwrite_existing);
  expect_refused("train hf.toml model.init=hf", {"model.embed_tokens.weight"});
  write("hf/config.json", "{\"model_type\": \"llama\"}");
  expect_refused("train hf.toml model.init=hf", {"config.json", "llama"});
  write("hf/config.json", "{");
  expect_refused("train hf.toml model.init=hf", {"config.json"});
}

TEST_F(BadInput, Checkpoints) {
  ASSERT_EQ(pleat("train deck.toml run.output=first").exit_code, 0);
  const std::string checkpoint = "first/checkpoints/step_00000003.h5";
  expect_refused_override("run.steps=4 model.hidden=64 checkpoint.resume=" + checkpoint,
                          {"step_00000003.h5", "PL0732", "model.hidden was 32, is 64"});
  expect_refused_override("run.steps=4 run.output=first model.layers=3",
                          {"step_00000003.h5", "PL0732", "model.layers was 2, is 3"});
  expect_refused_override("run.steps=4 checkpoint.resume=nowhere.h5", {"nowhere.h5"});
  fs::resize_file(path(checkpoint), fs::file_size(path(checkpoint)) - 100);
  expect_refused_override("run.steps=4 checkpoint.resume=" + checkpoint, {"step_00000003.h5"});
  expect_refused("inspect " + checkpoint, {"step_00000003.h5"});
  expect_refused("convert " + checkpoint + " hf", {"step_00000003.h5"});
}

TEST_F(BadInput, OutputFolders) {
  write("file", "in the way");
  expect_refused_override("run.output=file", {"file"});
  expect_refused_override("run.output=file/out", {"file/out"});
  expect_refused_override("run.output=/proc/pleat", {"/proc/pleat"});
  expect_refused_override("run.output=/proc", {"/proc", "PL0703"});
}

TEST_F(BadInput, ObstaclesInTheOutputFolder) {
  for (const char* name : {"deck.toml", "deck.toml.tmp", "run.log", "metrics.csv",
                           "metrics.csv.tmp", ".lock"}) {
    fs::remove_all(path("out"));
    fs::create_directories(path("out") + "/" + name);
    expect_refused_override("run.output=out", {"PL0703", std::string("out/") + name});
  }
  fs::remove_all(path("out"));
  fs::create_directory(path("out"));
  write("out/gradients", "in the way");
  expect_refused_override("run.output=out", {"PL0703", "out/gradients"});
  fs::remove(path("out/gradients"));
  fs::create_symlink("nowhere", path("out/checkpoints"));
  expect_refused_override("run.output=out", {"PL0703", "out/checkpoints"});
  // A link to a folder elsewhere is none.
  fs::create_directory(path("out/nowhere"));
  const CommandResult run = pleat("train deck.toml run.output=out");
  EXPECT_EQ(run.exit_code, 0) << run.output;
}

// A folder in which not even root can write stands for those of somebody else.
TEST_F(BadInput, FoldersOfTheRunThatCannotBeWritten) {
  ASSERT_EQ(pleat("train deck.toml run.output=out").exit_code, 0);
  const std::string go_on = "run.output=out run.steps=4 ";
  fs::create_symlink("/proc", path("out/gradients"));
  expect_refused_override(go_on + "output.gradients_at=[4]", {"PL0703", "out/gradients"});
  fs::remove(path("out/gradients"));
  const std::string checkpoint = "checkpoint.resume=kept/step_00000003.h5 ";
  fs::rename(path("out/checkpoints"), path("kept"));
  fs::create_symlink("/proc", path("out/checkpoints"));
  expect_refused_override(go_on + checkpoint, {"PL0703", "out/checkpoints"});
}

/// All ways to name a path; none may be looked at below the folder.
std::vector<std::string> commands_on(const std::string& folder) {
  return {"bench --json " + folder + "/x.json",
          "verify deck.toml --json " + folder + "/x.json",
          "bench --compare " + folder + "/x.json " + folder + "/y.json",
          "convert " + folder + "/x y.h5",
          "convert deck.toml " + folder + "/y.h5",
          "convert sound " + folder + "/y",
          "inspect " + folder + "/x.h5",
          "inspect " + folder + "/x",
          "generate " + folder + "/x --prompt a",
          "batch deck.toml --ranks-per-node 1 --time 1h --output " + folder + "/x.sh",
          "map deck.toml --ranks 1 --svg " + folder + "/x.svg",
          "check " + folder + "/x.toml",
          "train " + folder + "/x.toml",
          "train deck.toml run.output=" + folder + "/x",
          "train deck.toml data.format=text data.path=" + folder + "/x.txt",
          "train deck.toml model.init=" + folder + "/x",
          "train deck.toml checkpoint.resume=" + folder + "/x.h5"};
}

// Links in a circle: the system refuses to look, whoever asks.
TEST_F(BadInput, PlacesThatCannotBeLookedAt) {
  fs::create_symlink("circle", path("circle"));
  ASSERT_EQ(pleat("train deck.toml run.output=sound").exit_code, 0);
  for (const std::string& command : commands_on("circle"))
    expect_refused(command, {"circle/", "Too many levels of symbolic links"});
}

TEST_F(BadInput, PlacesThatAreForbidden) {
  if (!nobody_can_run(program())) GTEST_SKIP() << "nobody else can run the program here";
  ASSERT_EQ(pleat("train deck.toml run.output=sound").exit_code, 0);
  fs::create_directory(path("locked"));
  fs::permissions(folder_, fs::perms::all);
  fs::permissions(path("locked"), fs::perms::none);
  for (const std::string& command : commands_on("locked")) {
    const CommandResult run = pleat(command, command_as_nobody());
    EXPECT_EQ(run.exit_code, 2) << command << "\n" << run.output;
    EXPECT_EQ(count(run.output, "pleat: PL"), 1) << command << "\n" << run.output;
    for (const char* phrase : {"locked/", "Permission denied"}) {
      EXPECT_NE(run.output.find(phrase), std::string::npos) << command << "\n" << run.output;
    }
    EXPECT_EQ(run.output.find("relative"), std::string::npos) << command << "\n" << run.output;
  }
  fs::permissions(path("locked"), fs::perms::owner_all);
}

// Checkpoints that cannot be listed are not taken for none.
TEST_F(BadInput, CheckpointsThatAreForbidden) {
  if (!nobody_can_run(program())) GTEST_SKIP() << "nobody else can run the program here";
  ASSERT_EQ(pleat("train deck.toml run.output=sound").exit_code, 0);
  for (const char* place : {"", "sound", "sound/checkpoints"})
    fs::permissions(path(place), fs::perms::all);
  const auto reading = fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read;
  fs::permissions(path("sound/checkpoints"), reading, fs::perm_options::remove);
  const CommandResult run =
      pleat("train deck.toml run.output=sound run.steps=4", command_as_nobody());
  fs::permissions(path("sound/checkpoints"), fs::perms::all);
  EXPECT_EQ(run.exit_code, 2) << run.output;
  EXPECT_NE(run.output.find("cannot look at 'sound/checkpoints'"), std::string::npos)
      << run.output;
}

TEST_F(BadInput, CommandLine) {
  expect_refused("trian deck.toml", {"trian"});
  expect_refused("train", {"deck"});
  expect_refused("train deck.toml run.steps", {"run.steps"});
  expect_refused("generate nowhere.h5", {"nowhere.h5"});
  expect_refused("inspect nowhere.h5", {"nowhere.h5"});
  expect_refused("convert nowhere elsewhere", {"nowhere"});
}

TEST_F(BadInput, OutputThatCannotBeWrittenIsTold) {
  // The comment sign takes away what the fixture appends.
  for (const std::string& arguments :
       {std::string("--version"), std::string("bench --help"), std::string("check deck.toml")}) {
    const CommandResult run = pleat(arguments + " >/dev/full 2>errors #");
    EXPECT_EQ(run.exit_code, 4) << arguments;
    std::ifstream file(path("errors"));
    const std::string errors{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(errors.find("pleat: PL0106: standard output"), std::string::npos)
        << arguments << "\n" << errors;
  }
}

}  // namespace
}  // namespace pleat::test
