// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/error.hpp"
#include "pleat/base/spelling.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::plan {
namespace {

using testing::HasSubstr;

// The benchmark model: 4 layers, hidden 512, 8 heads, 4 key/value heads.
ModelConfig bench_s() {
  ModelConfig config;
  config.layers = 4;
  config.hidden = 512;
  config.heads = 8;
  config.kv_heads = 4;
  config.head_dim = 64;
  config.vocab = 8192;
  config.moe.ffn = 1024;
  config.moe_layer.assign(4, true);
  return config;
}

// Digits as published (arXiv 2504.14960 and the models' own reports).
struct PublishedCount {
  const char* name;
  const char* total;
  const char* active;
  int total_digits;
  int active_digits;
};

class Presets : public testing::TestWithParam<PublishedCount> {};

TEST_P(Presets, MatchThePublishedCounts) {
  const PublishedCount& published = GetParam();
  const ModelConfig config = preset(published.name);
  EXPECT_NO_THROW(validate(config));
  const ParameterCount count = count_parameters(config);
  EXPECT_EQ(fmt::format("{:.{}f}", 1e-9 * static_cast<double>(count.total),
                        published.total_digits),
            published.total);
  EXPECT_EQ(fmt::format("{:.{}f}", 1e-9 * static_cast<double>(count.active),
                        published.active_digits),
            published.active);
}

INSTANTIATE_TEST_SUITE_P(
    All, Presets,
    testing::Values(PublishedCount{"mixtral-8x7b", "46.70", "12.88", 2, 2},
                    PublishedCount{"mixtral-8x22b", "140.62", "39.15", 2, 2},
                    PublishedCount{"mixtral-8x22b-g8t8", "140.64", "22.26", 2, 2},
                    PublishedCount{"llama3-8x70b", "465.2", "126.9", 1, 1},
                    PublishedCount{"qwen2-57b-a14b", "57.41", "14.25", 2, 2},
                    PublishedCount{"qwen3-30b-a3b", "30.53", "3.35", 2, 2},
                    PublishedCount{"qwen3-235b-a22b", "235.09", "22.19", 2, 2}),
    [](const auto& info) {
      std::string name = info.param.name;
      for (char& c : name) c = c == '-' ? '_' : c;
      return name;
    });

TEST(Presets, EveryNameMakesAModel) {
  EXPECT_EQ(preset_names().size(), 7U);
  for (const std::string& name : preset_names()) EXPECT_NO_THROW(validate(preset(name)));
}

TEST(Presets, UnknownNameTellsTheNearest) {
  try {
    preset("mixtrl-8x7B");
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(error.id(), "PL0601");
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'mixtral-8x7b'?"));
    EXPECT_THAT(error.what(), HasSubstr("qwen3-30b-a3b"));
  }
}

TEST(Flops, BenchmarkModelByHand) {
  // Per token and layer: attention 2 * 512 * (512 + 256) weights, two experts of
  // 3 * 512 * 1024; head 512 * 8192. Scores: 12 * 4 layers * 512 * 512 positions.
  const double weights = 4.0 * (786432.0 + 3145728.0) + 4194304.0;
  const FlopCount flops = training_flops_per_token(bench_s(), 512);
  EXPECT_DOUBLE_EQ(flops.full_attention, 6.0 * weights + 12582912.0);
  EXPECT_DOUBLE_EQ(flops.causal_attention, 6.0 * weights + 6291456.0);
  // About 126 MFLOP per token; the router, which neither rule counts, would make it
  // 125.93.
  const double router = 6.0 * 4.0 * 512.0 * 8.0;
  EXPECT_NEAR((flops.causal_attention + router) * 1e-6, 125.93, 0.005);
}

// The closed form as published, for models whose layers are all MoE:
// 12 L h^2 [(1 + kv/a + s/h) q/h + 1.5 (k f + f_shared)/h + V/(2 L h)].
double published_full_rule(const ModelConfig& c, double s) {
  const double h = static_cast<double>(c.hidden);
  const double layers = static_cast<double>(c.layers);
  const double kv = static_cast<double>(c.kv_heads) / static_cast<double>(c.heads);
  const double q = static_cast<double>(c.heads * c.head_dim);
  const double ffn = static_cast<double>(c.moe.top_k * c.moe.ffn + c.moe.shared_ffn);
  const double vocab = static_cast<double>(c.vocab);
  return 12.0 * layers * h * h *
         ((1.0 + kv + s / h) * q / h + 1.5 * ffn / h + vocab / (2.0 * layers * h));
}

TEST(Flops, AgreeWithThePublishedFormula) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = preset(name);
    const double full = training_flops_per_token(config, 4096).full_attention;
    EXPECT_NEAR(full / published_full_rule(config, 4096.0), 1.0, 1e-14) << name;
  }
}

TEST(Flops, RulesDifferAsPublished) {
  const auto apart = [](const char* name) {
    const FlopCount flops = training_flops_per_token(preset(name), 4096);
    return 100.0 * (1.0 - flops.causal_attention / flops.full_attention);
  };
  EXPECT_NEAR(apart("mixtral-8x22b"), 3.0, 0.5);
  EXPECT_NEAR(apart("qwen3-30b-a3b"), 17.0, 0.5);
}

TEST(Counts, TiedHeadCountsOnceButCostsTheSame) {
  ModelConfig tied = bench_s();
  tied.tied = true;
  EXPECT_EQ(count_parameters(bench_s()).total - count_parameters(tied).total, 512 * 8192);
  EXPECT_EQ(training_flops_per_token(tied, 512).causal_attention,
            training_flops_per_token(bench_s(), 512).causal_attention);
}

TEST(Counts, DenseLayer) {
  ModelConfig dense = bench_s();
  dense.ffn = 2048;
  dense.moe_layer[0] = false;
  const ParameterCount all = count_parameters(bench_s());
  const ParameterCount some = count_parameters(dense);
  const std::int64_t ffn = 3 * 512 * 2048;
  const std::int64_t expert = 3 * 512 * 1024;
  const std::int64_t router = 512 * 8;
  EXPECT_EQ(some.total - all.total, ffn - 8 * expert - router);
  EXPECT_EQ(some.active - all.active, ffn - 2 * expert - router);
  // An ffn of twice the expert's rows meets as many weights as two experts.
  EXPECT_EQ(training_flops_per_token(dense, 512).full_attention,
            training_flops_per_token(bench_s(), 512).full_attention);
}

// Each case breaks the benchmark model in one place.
struct BrokenModel {
  const char* what;
  std::function<void(ModelConfig&)> damage;
  const char* id;
  const char* text;
};

class Broken : public testing::TestWithParam<BrokenModel> {};

TEST_P(Broken, IsRejectedByName) {
  ModelConfig config = bench_s();
  ASSERT_NO_THROW(validate(config));
  GetParam().damage(config);
  try {
    validate(config);
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(error.id(), GetParam().id);
    EXPECT_THAT(error.what(), HasSubstr(GetParam().text));
  }
}

const BrokenModel kBroken[] = {
    {"layers", [](ModelConfig& c) { c.layers = 0; }, "PL0602", "model.layers = 0"},
    {"huge", [](ModelConfig& c) { c.vocab = std::int64_t{1} << 40; }, "PL0602",
     "16777216"},
    {"shared", [](ModelConfig& c) { c.moe.shared_ffn = -1; }, "PL0602",
     "moe.shared_ffn = -1"},
    {"hidden", [](ModelConfig& c) { c.hidden = -1; }, "PL0602", "model.hidden = -1"},
    {"vocab", [](ModelConfig& c) { c.vocab = 0; }, "PL0602", "model.vocab = 0"},
    {"kv_heads", [](ModelConfig& c) { c.kv_heads = 3; }, "PL0603", "model.kv_heads = 3"},
    {"no_kv_heads", [](ModelConfig& c) { c.kv_heads = 0; }, "PL0602",
     "model.kv_heads = 0"},
    {"head_dim", [](ModelConfig& c) { c.head_dim = 63; }, "PL0604",
     "model.head_dim = 63"},
    {"theta", [](ModelConfig& c) { c.rope_theta = 0.0; }, "PL0605", "model.rope_theta"},
    {"eps", [](ModelConfig& c) { c.norm_eps = -1e-5; }, "PL0605", "model.norm_eps"},
    {"pattern", [](ModelConfig& c) { c.moe_layer.pop_back(); }, "PL0606", "3 entries"},
    {"ffn", [](ModelConfig& c) { c.moe_layer[1] = false; }, "PL0607", "model.ffn = 0"},
    {"top_k", [](ModelConfig& c) { c.moe.top_k = 9; }, "PL0608", "moe.experts = 8"},
    {"no_top_k", [](ModelConfig& c) { c.moe.top_k = 0; }, "PL0608", "moe.top_k = 0"},
    {"experts", [](ModelConfig& c) { c.moe.experts = 0; }, "PL0602", "moe.experts = 0"},
    {"expert_ffn", [](ModelConfig& c) { c.moe.ffn = 0; }, "PL0602", "moe.ffn = 0"},
    {"gate", [](ModelConfig& c) { c.moe.shared_gate = true; }, "PL0609", "shared_gate"},
    {"aux", [](ModelConfig& c) { c.moe.auxiliary_coefficient = -0.1; }, "PL0605", "-0.1"},
    {"bias", [](ModelConfig& c) { c.moe.bias_update_rate = -1; }, "PL0605",
     "bias_update"},
    {"scale", [](ModelConfig& c) { c.moe.routed_scale = 0; }, "PL0605", "routed_scale"},
    {"groups", [](ModelConfig& c) { c.moe.groups = 3; }, "PL0620", "moe.groups = 3"},
    {"single", [](ModelConfig& c) { c.moe.groups = 8; }, "PL0620", "one expert in each"},
    {"top_groups", [](ModelConfig& c) { c.moe.top_groups = 2; }, "PL0620",
     "1 to moe.groups"},
    {"few", [](ModelConfig& c) { c.moe.groups = 4, c.moe.top_k = 3; }, "PL0620",
     "moe.top_k = 3"},
    {"capacity", [](ModelConfig& c) { c.moe.drop.capacity_factor = -1; }, "PL0621",
     "= -1"},
    {"pad", [](ModelConfig& c) { c.moe.drop.pad = true; }, "PL0621", "moe.drop.pad"},
};

INSTANTIATE_TEST_SUITE_P(Validate, Broken, testing::ValuesIn(kBroken),
                         [](const auto& info) { return std::string(info.param.what); });

TEST(Validate, ExpertsDoNotMatterWithoutMoeLayers) {
  ModelConfig config = bench_s();
  config.ffn = 64;
  config.moe_layer.assign(4, false);
  config.moe.experts = 0;
  EXPECT_NO_THROW(validate(config));
}

TEST(Spelling, EditDistance) {
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("hidden", "hiddne"), 1U);
  EXPECT_EQ(edit_distance("layers", "layers"), 0U);
}

TEST(Spelling, NothingSimilarGivesNothing) {
  const std::vector<std::string> names{"layers", "hidden"};
  EXPECT_EQ(nearest_spelling("layrs", names), "layers");
  EXPECT_EQ(nearest_spelling("xyzxyz", names), "");
}

}  // namespace
}  // namespace pleat::plan
