// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Where the shape of the model comes from.
#include <gmock/gmock.h>

#include "deck/deck_test.hpp"
#include "deck/run_deck.hpp"

namespace pleat::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kWithoutModel = R"([run]
steps = 1
[batch]
sequence = 8
[data]
format = "synthetic"
)";

class RunModelTest : public RunDeckTest {
 protected:
  train::RunConfig load_model(const std::vector<std::string>& overrides) const {
    return load(kWithoutModel, overrides);
  }
  std::string complaint_about(const std::vector<std::string>& overrides) const {
    return complaint([&] { load_model(overrides); });
  }
  const std::string golden_ = std::string(PLEAT_TESTS_DIR) + "/golden";
};

TEST_F(RunModelTest, SizesAreRequiredWithoutInitOrPreset) {
  const std::vector<std::string> sizes = {"model.layers=1", "model.hidden=8",
                                          "model.heads=2", "model.vocab=16"};
  for (std::size_t left_out = 0; left_out < sizes.size(); ++left_out) {
    std::vector<std::string> given = sizes;
    given.erase(given.begin() + static_cast<std::ptrdiff_t>(left_out));
    const std::string name = sizes[left_out].substr(0, sizes[left_out].find('='));
    EXPECT_THAT(complaint_about(given),
                AllOf(StartsWith("PL0208: "), HasSubstr(name + ": missing")));
  }
}

TEST_F(RunModelTest, WithoutExpertsEveryLayerIsDense) {
  const std::vector<std::string> sizes = {"model.layers=2", "model.hidden=8",
                                          "model.heads=2", "model.vocab=16"};
  EXPECT_THAT(complaint_about(sizes),
              AllOf(StartsWith("PL0607: "), HasSubstr("try.toml: ")));
  std::vector<std::string> dense = sizes;
  dense.push_back("model.ffn=24");
  EXPECT_THAT(load_model(dense).model.moe_layer, Each(false));
  std::vector<std::string> moe = sizes;
  moe.push_back("moe.experts=4");
  EXPECT_THAT(complaint_about(moe), AllOf(StartsWith("PL0208: "), HasSubstr("moe.ffn")));
}

TEST_F(RunModelTest, ShapesThatDoNotFit) {
  const auto shape = [&](const std::string& overrides) {
    return complaint([&] { load(kSmallDeck, words(overrides)); });
  };
  EXPECT_THAT(
      shape("moe.top_k=5"),
      AllOf(StartsWith("PL0608: "), HasSubstr("moe.top_k = 5"), HasSubstr("try.toml")));
  EXPECT_THAT(shape("model.kv_heads=3"), StartsWith("PL0603: "));
  EXPECT_THAT(shape("model.head_dim=7"), StartsWith("PL0604: "));
  EXPECT_THAT(shape("moe.shared_gate=true"), StartsWith("PL0609: "));
}

TEST_F(RunModelTest, PresetsAreShapes) {
  for (const std::string& name : plan::preset_names()) {
    const plan::ModelConfig model = load_model({"model.preset=" + name}).model;
    const plan::ModelConfig expected = plan::preset(name);
    EXPECT_EQ(plan::count_parameters(model).total,
              plan::count_parameters(expected).total);
    EXPECT_EQ(plan::count_parameters(model).active,
              plan::count_parameters(expected).active);
    EXPECT_EQ(model.norm_eps, expected.norm_eps);
    EXPECT_EQ(model.qk_norm, expected.qk_norm);
    EXPECT_EQ(model.moe.normalize, expected.moe.normalize);
  }
  EXPECT_THAT(complaint_about({"model.preset=mixtral-8x7"}),
              AllOf(StartsWith("PL0207: "), HasSubstr("did you mean \"mixtral-8x7b\"?")));
}

TEST_F(RunModelTest, SingleKeysReplaceThoseOfAPreset) {
  const train::RunConfig config =
      load_model({"model.preset=mixtral-8x7b", "model.layers=2", "moe.ffn=64",
                  "moe.dense_layers=0", "model.ffn=128"});
  EXPECT_THAT(config.model.moe_layer, ElementsAre(false, true));
  EXPECT_EQ(config.model.moe.ffn, 64);
  EXPECT_EQ(config.model.hidden, 4096);
  EXPECT_EQ(config.model.head_dim, 128);
  EXPECT_THAT(config.resolved_deck, HasSubstr("preset = \"\""));
  EXPECT_EQ(load(config.resolved_deck).resolved_deck, config.resolved_deck);
}

TEST_F(RunModelTest, ShapeOfAHuggingFaceFolder) {
  const train::RunConfig config =
      load_model({"model.init=" + golden_ + "/qwen2moe-tiny", "moe.z_loss=0.5"});
  EXPECT_EQ(config.model_init, golden_ + "/qwen2moe-tiny");
  EXPECT_EQ(config.model.family, plan::Family::kQwen2Moe);
  EXPECT_EQ(config.model.hidden, 64);
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.model.moe.top_k, 4);
  EXPECT_EQ(config.model.moe.shared_ffn, 96);
  EXPECT_TRUE(config.model.qkv_bias);
  EXPECT_EQ(config.model.moe.z_coefficient, 0.5);
  // Its config.json has router_aux_loss_coef = 0.01, but does not switch it on.
  EXPECT_EQ(config.model.moe.auxiliary_coefficient, 0.0);
  EXPECT_EQ(load(config.resolved_deck).resolved_deck, config.resolved_deck);
}

TEST_F(RunModelTest, AuxiliaryCoefficientOfHuggingFace) {
  std::string text = read_text(golden_ + "/mixtral-tiny/config.json");
  const std::string off = "\"output_router_logits\": false";
  ASSERT_NE(text.find(off), std::string::npos);
  text.replace(text.find(off), off.size(), "\"output_router_logits\": true");
  write("model/config.json", text);
  EXPECT_EQ(load_model({"model.init=model"}).model.moe.auxiliary_coefficient, 0.01);
  EXPECT_EQ(load_model({"model.init=model", "moe.aux_loss.coeff=0"})
                .model.moe.auxiliary_coefficient,
            0.0);
}

TEST_F(RunModelTest, KeysMustAgreeWithInit) {
  const std::string init = "model.init=" + golden_ + "/mixtral-tiny";
  load_model({init, "model.hidden=64", "moe.experts=8", "model.rope_theta=1000000"});
  EXPECT_THAT(
      complaint_about({init, "model.hidden=128"}),
      AllOf(StartsWith("PL0212: override 'model.hidden=128': model.hidden = 128, but "),
            HasSubstr("has 64")));
  EXPECT_THAT(complaint_about({init, "moe.top_k=3"}), StartsWith("PL0212: "));
  EXPECT_THAT(complaint_about({init, "model.family=qwen3_moe"}),
              AllOf(StartsWith("PL0212: "), HasSubstr("\"qwen3_moe\""),
                    HasSubstr("\"mixtral\"")));
  EXPECT_THAT(
      complaint_about({init, "moe.dense_layers=[1]"}),
      AllOf(StartsWith("PL0212: "), HasSubstr("= [1], but"), HasSubstr("has []")));
}

/// Both are copies of one checkpoint, of step 2: what counts here is which is named.
TEST_F(RunModelTest, InitThatIsARun) {
  const std::string run = write("run/checkpoints/LATEST", "step_00000002.h5\n");
  const std::filesystem::path folder = std::filesystem::path(run).parent_path();
  for (const char* name : {"step_00000002.h5", "step_00000004.h5"}) {
    std::filesystem::copy_file(std::string(PLEAT_TESTS_DIR) + "/restart/format_2.h5",
                               folder / name);
  }
  const train::RunConfig config = load_model({"model.init=run"});
  EXPECT_EQ(config.model_init, (folder / "step_00000002.h5").string());
  EXPECT_GT(config.model.hidden, 0);
  EXPECT_THAT(config.resolved_deck, HasSubstr("run/checkpoints/step_00000002.h5\""));
  EXPECT_EQ(load_model({"model.init=run/checkpoints"}).model_init, config.model_init);
  std::filesystem::remove(folder / "LATEST");
  EXPECT_EQ(load_model({"model.init=run"}).model_init, (folder / "step_00000004.h5").string());
  std::filesystem::create_directories(folder / "../../none/checkpoints");
  EXPECT_THAT(complaint_about({"model.init=none"}),
              AllOf(StartsWith("PL0213: "), HasSubstr("the folder of a run")));
}

TEST_F(RunModelTest, InitThatIsNone) {
  EXPECT_THAT(complaint_about({"model.init=nowhere"}),
              AllOf(StartsWith("PL0213: override "), HasSubstr("'nowhere' is neither")));
  write("text.h5", "not HDF5");
  EXPECT_THAT(complaint_about({"model.init=text.h5"}),
              AllOf(StartsWith("PL0301: override 'model.init=text.h5': model.init: "),
                    HasSubstr("not an HDF5 file")));
  EXPECT_THAT(complaint_about({"model.init=" + std::string(5000, 'x')}),
              StartsWith("PL0110: "));
  write("empty/config.json", "{}");
  EXPECT_THAT(complaint_about({"model.init=empty"}),
              AllOf(StartsWith("PL04"), HasSubstr("override 'model.init=empty': ")));
  EXPECT_THAT(complaint_about({"model.init=nowhere", "model.preset=mixtral-8x7b"}),
              AllOf(StartsWith("PL0209: "), HasSubstr("both given")));
}

}  // namespace
}  // namespace pleat::test
