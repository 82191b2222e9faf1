// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief pleat convert and pleat inspect, run as a user runs them.

#include <csignal>
#include <cstdlib>
#include <thread>

#include <sys/wait.h>

#include "files/support.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/hugging_face.hpp"
#include "pleat/io/safetensors.hpp"
#include "support/command.hpp"

namespace pleat::io {
namespace {

using testing::HasSubstr;

test::CommandResult run(const std::string& arguments) {
  return test::run_command(std::string(PLEAT_PROGRAM) + " " + arguments);
}

void expect_done(const std::string& arguments) {
  const test::CommandResult outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.output;
}

void expect_equal_tensors(const std::string& one, const std::string& two) {
  const SafetensorsReader a(one);
  const SafetensorsReader b(two);
  ASSERT_EQ(a.entries().size(), b.entries().size());
  for (const SafetensorsEntry& entry : a.entries()) {
    ASSERT_TRUE(b.contains(entry.name)) << entry.name;
    EXPECT_EQ(b.at(entry.name).type, entry.type);
    EXPECT_EQ(b.at(entry.name).shape, entry.shape);
    EXPECT_EQ(b.read_raw(b.at(entry.name)), a.read_raw(entry)) << entry.name;
  }
}

TEST(Convert, HuggingFaceToCheckpointAndBackIsEqualBitForBit) {
  for (const std::string& name : test::golden_cases()) {
    SCOPED_TRACE(name);
    const test::TemporaryFolder folder;
    expect_done("convert " + test::golden(name) + " " + (folder / "c.h5"));
    expect_done("convert " + (folder / "c.h5") + " " + (folder / "whole"));
    expect_done("convert " + (folder / "c.h5") + " " + (folder / "shards") +
                " --max-shard-size 100kB");
    expect_done("convert " + (folder / "c.h5") + " " + (folder / "same") +
                " --max-shard-size 100KB");
    expect_equal_tensors(test::golden(name), folder / "whole");
    expect_equal_tensors(test::golden(name), folder / "shards");
    EXPECT_TRUE(std::filesystem::exists(folder / "shards/model.safetensors.index.json"));
    // And from shards: the checkpoint has the same tensors, hence the same file.
    expect_done("convert " + (folder / "shards") + " " + (folder / "again.h5"));
    expect_done("convert " + (folder / "again.h5") + " " + (folder / "again"));
    EXPECT_EQ(test::read_file(folder / "again/model.safetensors"),
              test::read_file(folder / "whole/model.safetensors"));
    const auto before = read_hugging_face_config(test::golden(name));
    const auto after = read_hugging_face_config(folder / "again");
    EXPECT_EQ(before.type, after.type);
    EXPECT_EQ(before.model.rope_theta, after.model.rope_theta);
  }
}

TEST(Convert, TypesAreChangedOnRequest) {
  const test::TemporaryFolder folder;
  const std::string source = test::golden("qwen3moe-tiny");
  expect_done("convert " + source + " " + (folder / "c.h5"));
  expect_done("convert " + (folder / "c.h5") + " " + (folder / "f64") + " --dtype f64");
  expect_done("convert " + (folder / "c.h5") + " " + (folder / "bf16") + " --dtype bf16");
  const SafetensorsReader narrow(source);
  const SafetensorsReader wide(folder / "f64");
  const SafetensorsReader brain(folder / "bf16");
  EXPECT_EQ(read_hugging_face_config(folder / "f64").type, ElementType::kF64);
  EXPECT_EQ(read_hugging_face_config(folder / "bf16").type, ElementType::kBf16);
  for (const SafetensorsEntry& entry : narrow.entries()) {
    const auto count = static_cast<std::size_t>(tensor::element_count(entry.shape));
    std::vector<double> expected(count);
    std::vector<double> exact(count);
    std::vector<double> rounded(count);
    narrow.read<double>(entry, expected);
    wide.read<double>(wide.at(entry.name), exact);
    brain.read<double>(brain.at(entry.name), rounded);
    EXPECT_EQ(wide.at(entry.name).type, ElementType::kF64);
    EXPECT_EQ(exact, expected);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_LE(std::abs(rounded[i] - expected[i]), std::abs(expected[i]) / 256.0);
    }
  }
}

TEST(Convert, NothingIsOverwrittenUnasked) {
  const test::TemporaryFolder folder;
  const std::string source = test::golden("qwen3moe-tiny");
  test::write_file(folder / "c.h5", "mine");
  const test::CommandResult refused = run("convert " + source + " " + (folder / "c.h5"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.output, HasSubstr("PL0920"));
  EXPECT_EQ(test::read_file(folder / "c.h5"), "mine");
  expect_done("convert --force " + source + " " + (folder / "c.h5"));
  std::filesystem::create_directory(folder / "model");
  test::write_file(folder / "model/tokenizer.json", "mine");
  test::write_file(folder / "model/model-00001-of-00002.safetensors", "old");
  EXPECT_EQ(run("convert " + (folder / "c.h5") + " " + (folder / "model")).exit_code, 2);
  expect_done("convert --force " + (folder / "c.h5") + " " + (folder / "model"));
  expect_equal_tensors(source, folder / "model");
  EXPECT_EQ(test::read_file(folder / "model/tokenizer.json"), "mine");
  EXPECT_FALSE(
      std::filesystem::exists(folder / "model/model-00001-of-00002.safetensors"));
}

/// Names in the folder, to see that nothing new is left behind.
std::size_t entries_of(const std::string& folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(Convert, BadInputIsOneMessageAndLeavesNothing) {
  const test::TemporaryFolder folder;
  std::filesystem::copy(test::golden("qwen3moe-tiny"), folder / "cut");
  std::filesystem::resize_file(folder / "cut/model.safetensors", 5000);
  std::filesystem::copy(test::golden("qwen3moe-tiny"), folder / "other");
  std::filesystem::copy_file(test::golden("mixtral-tiny/config.json"),
                             folder / "other/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  expect_done("convert " + test::golden("qwen3moe-tiny") + " " + (folder / "c.h5"));
  std::filesystem::copy_file(folder / "c.h5", folder / "damaged.h5");
  std::filesystem::resize_file(folder / "damaged.h5", 20000);
  const std::size_t before = entries_of(folder.path());
  const std::vector<std::pair<std::string, std::string>> cases{
      {(folder / "cut") + " " + (folder / "x.h5"), "truncated"},
      {(folder / "other") + " " + (folder / "x.h5"), "PL0408"},
      {(folder / "none") + " " + (folder / "x.h5"), "does not exist"},
      {(folder / "damaged.h5") + " " + (folder / "x"), "PL0301"},
      {(folder / "c.h5") + " " + (folder / "no/such/x"), "PL0921"},
      {(folder / "c.h5") + " " + (folder / "x.h5"), "PL0926"},
      {(folder / "c.h5") + " " + (folder / "x.safetensors"), "name of a folder"},
      {test::golden("qwen3moe-tiny") + " " + (folder / "x.safetensors"), "PL0926"},
      {test::golden("qwen3moe-tiny") + " " + (folder / "x"), "expected a name in .h5"},
      {(folder / "c.h5") + " /proc/x", "PL0921"},
      {test::golden("qwen3moe-tiny") + " /proc/x.h5", "PL0921"},
      {(folder / "c.h5") + " " + (folder / "x") + " --dtype i8", "--dtype"},
      {(folder / "c.h5") + " " + (folder / "x") + " --max-shard-size 5XB",
       "--max-shard-size"},
      {folder.path() + " " + (folder / "x"), "PL0924"}};
  for (const auto& [arguments, message] : cases) {
    const test::CommandResult outcome = run("convert " + arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(message)) << arguments;
    EXPECT_EQ(entries_of(folder.path()), before) << arguments;
  }
}

TEST(Convert, ARunFolderMeansItsNewestCheckpoint) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "run/checkpoints");
  expect_done("convert " + test::golden("mixtral-tiny") + " " +
              (folder / "run/checkpoints/step_00000000.h5"));
  const std::string newest = PLEAT_TESTS_DIR "/restart/format_2.h5";  // of step 2
  std::filesystem::copy(newest, folder / "run/checkpoints/step_00000002.h5");
  expect_done("convert " + (folder / "run") + " " + (folder / "model"));
  expect_done("convert " + newest + " " + (folder / "expected"));
  expect_equal_tensors(folder / "expected", folder / "model");
}

TEST(Convert, FilesThatACheckpointDoesNotHoldAreNamed) {
  const test::TemporaryFolder folder;
  const std::string source = folder / "model";
  std::filesystem::copy(test::golden("mixtral-tiny"), source);
  for (const char* name : {"trace.h5", "golden.h5"})
    std::filesystem::remove(source + "/" + name);
  const test::CommandResult bare = run("convert " + source + " " + (folder / "bare.h5"));
  EXPECT_THAT(bare.output, testing::Not(HasSubstr("not part of a checkpoint")));
  test::write_file(source + "/tokenizer.json", "{}");
  test::write_file(source + "/generation_config.json", "{}");
  const test::CommandResult there = run("convert " + source + " " + (folder / "c.h5"));
  EXPECT_EQ(there.exit_code, 0);
  EXPECT_THAT(there.output, HasSubstr("not part of a checkpoint: generation_config.json, "
                                    "tokenizer.json\n"));
  const test::CommandResult back = run("convert " + (folder / "c.h5") + " " + (folder / "back"));
  EXPECT_EQ(back.exit_code, 0);
  EXPECT_THAT(back.output, HasSubstr("no tokenizer and no generation_config.json"));
  // They stay where the model is converted into its own folder.
  const test::CommandResult again = run("convert --force " + (folder / "c.h5") + " " + source);
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.output, testing::Not(HasSubstr("no tokenizer")));
  EXPECT_EQ(test::read_file(source + "/tokenizer.json"), "{}");
}

// Killed at any moment, the target is there in full or not at all.
TEST(Convert, AKillLeavesNoHalfWrittenTarget) {
  const test::TemporaryFolder folder;
  const std::string source = test::golden("mixtral-tiny");
  for (int milliseconds = 0; milliseconds <= 200; milliseconds += 20) {
    const std::string target = folder / fmt::format("c{}.h5", milliseconds);
    const std::string shell =
        fmt::format("timeout -s KILL {}.{:03} {} convert {} {} >/dev/null 2>&1", 0,
                    milliseconds + 1, PLEAT_PROGRAM, source, target);
    const int status = std::system(("sh -c '" + shell + "' 2>/dev/null").c_str());
    static_cast<void>(status);
    if (std::filesystem::exists(target)) CheckpointReader(target).verify_all();
  }
}

TEST(Inspect, ShowsAndVerifies) {
  const test::TemporaryFolder folder;
  expect_done("convert " + test::golden("qwen3moe-tiny") + " " + (folder / "c.h5"));
  const test::CommandResult plain = run("inspect " + (folder / "c.h5"));
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_THAT(plain.output, HasSubstr("72480 elements"));
  EXPECT_THAT(plain.output, HasSubstr("checksums verified"));
  const test::CommandResult full = run("inspect --tensors --statistics " + (folder / "c.h5"));
  EXPECT_THAT(full.output, HasSubstr("model.layers.1.mlp.experts.7.down_proj.weight"));
  EXPECT_THAT(full.output, HasSubstr("rms"));
  const test::CommandResult model = run("inspect " + test::golden("mixtral-tiny"));
  EXPECT_EQ(model.exit_code, 0);
  EXPECT_THAT(model.output, HasSubstr("353600 elements"));
  const test::CommandResult other = run("inspect " + test::golden("mixtral-tiny/golden.h5"));
  EXPECT_EQ(other.exit_code, 0);
  EXPECT_THAT(other.output, HasSubstr("/forward/logits float64 [4, 32, 256]"));
}

TEST(Inspect, AModelFolderIsComparedWithItsConfig) {
  const test::TemporaryFolder folder;
  const std::string model = folder / "model";
  std::filesystem::copy(test::golden("mixtral-tiny"), model);
  EXPECT_THAT(run("inspect " + model).output,
              HasSubstr("names and shapes of all tensors agree with it"));
  std::string config = test::read_file(model + "/config.json");
  const std::string vocabulary = "\"vocab_size\": 256";
  ASSERT_NE(config.find(vocabulary), std::string::npos);
  config.replace(config.find(vocabulary), vocabulary.size(), "\"vocab_size\": 255");
  test::write_file(model + "/config.json", config);
  const test::CommandResult outcome = run("inspect " + model);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output,
              testing::AllOf(HasSubstr("353600 elements"), HasSubstr("PL0408"),
                             HasSubstr("2 of 2 differences"),
                             HasSubstr("'model.embed_tokens.weight' has shape [256, 64], "
                                       "config.json says [255, 64]"),
                             HasSubstr("'lm_head.weight' has shape [256, 64]")));
}

TEST(Inspect, DamageIsNamedWithExitCodeTwo) {
  const test::TemporaryFolder folder;
  expect_done("convert " + test::golden("qwen3moe-tiny") + " " + (folder / "c.h5"));
  const std::string bytes = test::read_file(folder / "c.h5");
  const Hdf5File file = Hdf5File::open_read(folder / "c.h5");
  const auto norm = CheckpointReader(folder / "c.h5")
                        .read_raw(TensorGroup::kParameters, "model.norm.weight");
  // The data of one tensor: found by its bytes, then one bit is flipped.
  const std::string needle(reinterpret_cast<const char*>(norm.data()), norm.size());
  const std::size_t place = bytes.find(needle);
  ASSERT_NE(place, std::string::npos);
  std::string damaged = bytes;
  damaged[place + 5] = static_cast<char>(damaged[place + 5] ^ 4);
  test::write_file(folder / "d.h5", damaged);
  const test::CommandResult outcome = run("inspect " + (folder / "d.h5"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("PL0308"));
  EXPECT_THAT(outcome.output, HasSubstr("d.h5: /parameters/model."));
  test::write_file(folder / "t.h5", bytes.substr(0, bytes.size() / 3));
  EXPECT_EQ(run("inspect " + (folder / "t.h5")).exit_code, 2);
  EXPECT_EQ(run("inspect " + (folder / "none")).exit_code, 2);
}

}  // namespace
}  // namespace pleat::io
