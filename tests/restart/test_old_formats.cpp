// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Checkpoints of all format versions, as the programs of their time wrote them, stay
/// readable for ever. The files are never written anew; a new version adds one.

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "pleat/io/checkpoint.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

// With this deck, in double precision, the files were written after two of the four steps.
constexpr const char* kDeck = R"(
[run]
steps = 4
seed = 7
output = "out"
[model]
layers = 1
hidden = 8
heads = 2
kv_heads = 1
vocab = 64
[moe]
experts = 2
ffn = 8
[batch]
sequence = 8
micro = 2
global = 2
[optimizer]
lr = 5e-3
warmup = 1
[precision]
compute = "fp64"
[data]
format = "synthetic"
synthetic_samples = 16
[checkpoint]
every = 2
)";

/// What the programs put into the files, and how their own runs went on.
constexpr std::int64_t kTensors = 16;
constexpr std::array<double, 2> kLosses{4.1760476530554218, 4.1331157096263347};
constexpr double kFirstElement = -0.0060862930903417085;

class OldFormat : public ProgramTest, public ::testing::WithParamInterface<int> {
 protected:
  static std::string sample() {
    return std::string(PLEAT_TESTS_DIR) + "/restart/format_" + std::to_string(GetParam()) +
           ".h5";
  }
};

TEST_P(OldFormat, ReadersAgreeOnItsContent) {
  const io::CheckpointReader reader(sample());
  reader.verify_all();
  const io::CheckpointLoader loader(sample(), MPI_COMM_SELF);
  for (const io::CheckpointInfo& info : {reader.info(), loader.info()}) {
    EXPECT_EQ(info.format_version, GetParam());
    EXPECT_EQ(info.step, 2);
    EXPECT_EQ(info.next_sample, 4);
    EXPECT_EQ(info.precision, "fp64");
    EXPECT_EQ(info.model.hidden, 8);
    EXPECT_EQ(info.model.moe.experts, 2);
    EXPECT_EQ(info.skipped, 0);
    const bool has_history = GetParam() >= 3;
    EXPECT_EQ(info.history.empty(), !has_history);
    EXPECT_EQ(info.recent_losses.size(), has_history ? 2U : 0U);
    EXPECT_EQ(info.data_identity.empty(), !has_history);
  }
  for (const auto group : {io::TensorGroup::kParameters, io::TensorGroup::kFirstMoment,
                           io::TensorGroup::kSecondMoment}) {
    EXPECT_EQ(reader.names(group).size(), kTensors);
  }
  const auto bytes =
      reader.read_raw(io::TensorGroup::kParameters, "model.embed_tokens.weight");
  std::vector<double> values(bytes.size() / sizeof(double));
  io::decode_elements<double>(io::ElementType::kF64, bytes, values);
  EXPECT_EQ(values.front(), kFirstElement);
}

TEST_P(OldFormat, IsInspected) {
  const CommandResult run = pleat("inspect '" + sample() + "'");
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("format version           " + std::to_string(GetParam())),
            std::string::npos)
      << run.output;
  EXPECT_NE(run.output.find("checksums verified"), std::string::npos) << run.output;
}

TEST_P(OldFormat, IsResumedFrom) {
  write("deck.toml", kDeck);
  std::filesystem::create_directories(path("out/checkpoints"));
  std::filesystem::copy(sample(), path("out/checkpoints/" + io::checkpoint_name(2)));
  const CommandResult run = pleat("train deck.toml");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const auto losses = read_metrics(path("out/metrics.csv")).at("loss");
  ASSERT_EQ(losses.size(), kLosses.size()) << run.output;
  for (std::size_t i = 0; i < kLosses.size(); ++i) {
    EXPECT_NEAR(losses[i], kLosses[i], 1e-12);
  }
  const io::CheckpointReader next(path("out/checkpoints/" + io::checkpoint_name(4)));
  EXPECT_EQ(next.info().format_version, io::kCheckpointFormat);
}

INSTANTIATE_TEST_SUITE_P(Versions, OldFormat, ::testing::Range(1, static_cast<int>(io::kCheckpointFormat) + 1));

}  // namespace
}  // namespace pleat::test
