// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief pleat inspect on runs and checkpoints: what it shows, and that it sees all damage.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "pleat/io/checkpoint.hpp"
#include "pleat/io/json.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kDeck = R"(
[run]
steps = 6
output = "run"
[model]
layers = 2
hidden = 16
heads = 2
vocab = 256
[moe]
experts = 2
ffn = 8
[batch]
sequence = 8
[data]
format = "synthetic"
[checkpoint]
every = 2
)";

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class InspectRun : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write("deck.toml", kDeck);
    const CommandResult run = pleat("train deck.toml");
    ASSERT_EQ(run.exit_code, 0) << run.output;
  }

  std::string checkpoint(int step) const {
    return "run/checkpoints/" + io::checkpoint_name(step);
  }
  /// Without what the program says of errors; "#" hides that pleat() asks for it.
  CommandResult inspect_json(const std::string& arguments) const {
    return pleat("inspect --json " + arguments + " 2>/dev/null #");
  }
  json facts(const std::string& arguments, int expected_code = 0) const {
    const CommandResult result = inspect_json(arguments);
    EXPECT_EQ(result.exit_code, expected_code) << arguments << "\n" << result.output;
    return json::parse(result.output);
  }
  /// Flips a bit of a tensor's elements, which are found by their bytes.
  void damage(int step, const std::string& tensor) const {
    const std::string file = path(checkpoint(step));
    const auto raw = io::CheckpointReader(file).read_raw(io::TensorGroup::kParameters, tensor);
    std::string bytes = read_bytes(file);
    const std::string needle(reinterpret_cast<const char*>(raw.data()), raw.size());
    const std::size_t place = bytes.find(needle);
    ASSERT_NE(place, std::string::npos);
    bytes[place + 5] = static_cast<char>(bytes[place + 5] ^ 4);
    fs::remove(file);
    write(checkpoint(step), bytes);
  }
};

TEST_F(InspectRun, AFolderShowsAllCheckpointsAndTheNewest) {
  write("run/checkpoints/step_00000008.h5.tmp", "half");
  const CommandResult result = pleat("inspect run");
  EXPECT_EQ(result.exit_code, 0);
  for (const int step : {2, 4, 6}) EXPECT_THAT(result.output, HasSubstr(io::checkpoint_name(step)));
  EXPECT_THAT(result.output, AllOf(HasSubstr("verified  LATEST\n"), Not(HasSubstr("DAMAGED")),
                                   HasSubstr("step_00000008.h5.tmp"),
                                   HasSubstr("step                     6, next sample 6"),
                                   HasSubstr("fp32")));
  // The folder of the checkpoints does as well.
  EXPECT_EQ(pleat("inspect run/checkpoints").exit_code, 0);
}

TEST_F(InspectRun, JsonOfAFolder) {
  write("run/checkpoints/step_00000008.h5.tmp", "half");
  const json run = facts("run");
  EXPECT_EQ(run["kind"], "run");
  EXPECT_EQ(run["latest"], io::checkpoint_name(6));
  EXPECT_EQ(run["unfinished"], json::array({"step_00000008.h5.tmp"}));
  ASSERT_EQ(run["checkpoints"].size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    const json& entry = run["checkpoints"][i];
    const int step = 6 - 2 * static_cast<int>(i);
    EXPECT_EQ(entry["step"], step);
    EXPECT_EQ(entry["latest"], step == 6);
    EXPECT_EQ(entry["bytes"], fs::file_size(path(checkpoint(step))));
    EXPECT_TRUE(entry["damage"].empty());
  }
  EXPECT_EQ(run["newest"]["step"], 6);
}

TEST_F(InspectRun, JsonOfACheckpointIsWhatIsInIt) {
  const io::CheckpointReader reader(path(checkpoint(4)));
  const json facts = this->facts(checkpoint(4) + " --statistics");
  EXPECT_EQ(facts["kind"], "checkpoint");
  EXPECT_EQ(facts["step"], 4);
  EXPECT_EQ(facts["next_sample"], 4);
  EXPECT_EQ(facts["deck"], reader.info().deck);
  EXPECT_EQ(facts["grid"], reader.info().grid);
  EXPECT_EQ(facts["build"], reader.info().build);
  EXPECT_EQ(facts["model"]["hidden"], 16);
  EXPECT_EQ(facts["model"]["moe_layer"], json::array({true, true}));
  std::size_t tensors = 0;
  for (const auto group : {io::TensorGroup::kParameters, io::TensorGroup::kFirstMoment,
                           io::TensorGroup::kSecondMoment}) {
    tensors += reader.names(group).size();
  }
  ASSERT_EQ(facts["tensors"].size(), tensors);
  for (const json& tensor : facts["tensors"]) {
    if (tensor["path"] != "/parameters/model.norm.weight") continue;
    EXPECT_EQ(tensor["type"], "F32");
    EXPECT_EQ(tensor["shape"], json::array({16}));
    EXPECT_EQ(tensor["verified"], true);
    EXPECT_EQ(tensor["checksum"], io::checksum_text(reader.stored_checksum(
                                      io::TensorGroup::kParameters, "model.norm.weight")));
    const auto raw = reader.read_raw(io::TensorGroup::kParameters, "model.norm.weight");
    std::vector<float> values(16);
    std::memcpy(values.data(), raw.data(), raw.size());
    double sum = 0.0;
    for (const float value : values) sum += value;
    EXPECT_NEAR(tensor["mean"].get<double>(), sum / 16, 1e-12);
    EXPECT_EQ(tensor["finite"], 16);
    return;
  }
  FAIL() << "the norm is not listed";
}

TEST_F(InspectRun, EveryJobIsInTheHistory) {
  for (const int steps : {7, 8, 9, 10, 11, 12, 13}) {
    const std::string more = "train deck.toml run.steps=" + std::to_string(steps);
    const CommandResult run = pleat(more, "SLURM_JOB_ID=" + std::to_string(1000 + steps));
    ASSERT_EQ(run.exit_code, 0) << run.output;
  }
  const json history = facts(checkpoint(13))["history"];
  ASSERT_EQ(history.size(), 8U);
  EXPECT_THAT(history[0].get<std::string>(),
              AllOf(HasSubstr("from step 0 on 1 rank of host "), Not(HasSubstr("(job"))));
  EXPECT_THAT(history[7].get<std::string>(), HasSubstr("from step 12 on 1 rank of host "));
  EXPECT_THAT(history[7].get<std::string>(), HasSubstr("(Slurm job 1013), pp=1"));
  // The terminal shows the first and the last ones, or all.
  const std::string some = pleat("inspect " + checkpoint(13)).output;
  EXPECT_THAT(some, AllOf(HasSubstr("from step 0 "), HasSubstr("from step 12 "),
                          Not(HasSubstr("from step 6 ")), HasSubstr("3 more: --history")));
  const std::string all = pleat("inspect --history " + checkpoint(13)).output;
  EXPECT_THAT(all, AllOf(HasSubstr("from step 6 "), HasSubstr("from step 12 "),
                         Not(HasSubstr("more:"))));
}

TEST_F(InspectRun, TheDeckIsPrintedAsItIsKept) {
  EXPECT_THAT(pleat("inspect --deck " + checkpoint(6)).output,
              HasSubstr("\n\n" + read_bytes(path("run/deck.toml"))));
}

TEST_F(InspectRun, DamagedPartsAreAllListedAndTheOneBeforeIsShown) {
  damage(6, "model.norm.weight");
  damage(6, "model.embed_tokens.weight");
  const CommandResult result = pleat("inspect run");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("DAMAGED  LATEST"), HasSubstr("PL0925"), HasSubstr("PL0308"),
                    HasSubstr("/parameters/model.norm.weight"),
                    HasSubstr("/parameters/model.embed_tokens.weight"),
                    HasSubstr("step                     4, next sample 4")));
  const json run = facts("run", 2);
  EXPECT_EQ(run["checkpoints"][0]["damage"].size(), 2U);
  EXPECT_EQ(run["newest"]["step"], 4);
  const json file = facts(checkpoint(6), 2);
  int damaged = 0;
  for (const json& tensor : file["tensors"]) damaged += tensor["verified"] == false ? 1 : 0;
  EXPECT_EQ(damaged, 2);
  EXPECT_EQ(facts(checkpoint(6) + " --statistics", 2)["damage"].size(), 2U);
  EXPECT_EQ(facts(checkpoint(4))["damage"].size(), 0U);
}

TEST_F(InspectRun, WithoutAUsableCheckpointTheTableIsShown) {
  for (const int step : {2, 4, 6}) fs::resize_file(path(checkpoint(step)), 1000);
  const CommandResult result = pleat("inspect run");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, AllOf(HasSubstr("PL0301"), HasSubstr(io::checkpoint_name(2)),
                                   Not(HasSubstr("next sample"))));
  EXPECT_TRUE(facts("run", 2)["newest"].is_null());
}

// Cut anywhere, or with a bit flipped anywhere: an answer with exit code 0 (unused space) or
// 2, and JSON in either case.
TEST_F(InspectRun, NoDamageMakesItCrash) {
  const std::string whole = read_bytes(path(checkpoint(2)));
  std::size_t seen = 0;
  for (int i = 0; i < 40; ++i) {
    std::string bytes = whole;
    const std::size_t place = bytes.size() * static_cast<std::size_t>(i) / 40;
    if (i % 2 == 0) {
      bytes.resize(place);
    } else {
      bytes[place] = static_cast<char>(bytes[place] ^ 16);
    }
    write("damaged.h5", bytes);
    const CommandResult result = inspect_json("damaged.h5");
    ASSERT_TRUE(result.exit_code == 0 || result.exit_code == 2) << i << result.output;
    const json found = json::parse(result.output);
    EXPECT_EQ(found["damage"].empty(), result.exit_code == 0) << i;
    if (i % 2 == 0) {
      EXPECT_EQ(result.exit_code, 2) << "cut at " << place;
    }
    seen += result.exit_code == 2 ? 1U : 0U;
  }
  EXPECT_GE(seen, 25U);
}

TEST_F(InspectRun, JsonIsForCheckpointsAndRunsOnly) {
  write("text.txt", "hello");
  const CommandResult result = pleat("inspect --json text.txt");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, AllOf(HasSubstr("PL0901"), HasSubstr("--json")));
  fs::create_directory(path("empty"));
  EXPECT_THAT(pleat("inspect empty").output, HasSubstr("PL0924"));
}

// docs/read_checkpoint.py comes to the same verdicts, where Python has what it needs.
TEST_F(InspectRun, TheExampleInPythonReadsIt) {
  const auto verdict = [&](const std::string& file) {
    const std::string command = "'" PLEAT_TESTS_DIR "/support/python_with_h5py' "
                                "'" PLEAT_SOURCE_DIR "/docs/read_checkpoint.py' '" +
                                path(file) + "' > /dev/null";
    return WEXITSTATUS(std::system(command.c_str()));
  };
  const int undamaged = verdict(checkpoint(6));
  if (undamaged == 77) GTEST_SKIP() << "needs h5py, numpy and tomllib (Debian: python3-h5py)";
  EXPECT_EQ(undamaged, 0);
  damage(6, "model.norm.weight");
  EXPECT_EQ(verdict(checkpoint(6)), 2);
  std::filesystem::resize_file(path(checkpoint(6)), 5000);
  EXPECT_EQ(verdict(checkpoint(6)), 2);
}

TEST_F(InspectRun, H5dumpReadsIt) {
  if (std::system("command -v h5dump >/dev/null 2>&1") != 0) {
    ASSERT_EQ(std::getenv("PLEAT_CI"), nullptr) << "there is no h5dump";
    GTEST_SKIP() << "needs h5dump (Debian: hdf5-tools)";
  }
  const std::string command = "h5dump -H '" + path(checkpoint(6)) + "' > '" +
                              path("dump") + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_THAT(read_bytes(path("dump")),
              AllOf(HasSubstr("ATTRIBUTE \"next_sample\""), HasSubstr("GROUP \"parameters\""),
                    HasSubstr("DATASET \"model.norm.weight\"")));
}

}  // namespace
}  // namespace pleat::test
