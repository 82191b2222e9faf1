// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "files/support.hpp"
#include "pleat/io/hdf5.hpp"
#include "pleat/io/hugging_face.hpp"

namespace pleat::io {
namespace {

using nlohmann::json;
using plan::Family;
using plan::ModelConfig;
using test::message_of;
using testing::HasSubstr;

HuggingFaceConfig parse(const json& tree) {
  return parse_hugging_face_config(tree.dump(), "config.json");
}

std::string refusal(const json& tree) {
  return message_of<InputError>([&] { parse(tree); });
}

json golden_config(const std::string& name) {
  return json::parse(test::read_file(test::golden(name + "/config.json")));
}

// The published configs of the hub, in the spelling of transformers 4.
json published_mixtral() {
  return json::parse(R"({"architectures":["MixtralForCausalLM"],"attention_dropout":0.0,
    "bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":4096,
    "initializer_range":0.02,"intermediate_size":14336,"max_position_embeddings":32768,
    "model_type":"mixtral","num_attention_heads":32,"num_experts_per_tok":2,
    "num_hidden_layers":32,"num_key_value_heads":8,"num_local_experts":8,
    "output_router_logits":false,"rms_norm_eps":1e-05,"rope_theta":1000000.0,
    "router_aux_loss_coef":0.02,"sliding_window":null,"tie_word_embeddings":false,
    "torch_dtype":"bfloat16","transformers_version":"4.36.0.dev0","use_cache":true,
    "vocab_size":32000})");
}

json published_qwen2() {
  return json::parse(R"({"architectures":["Qwen2MoeForCausalLM"],"attention_dropout":0.0,
    "decoder_sparse_step":1,"hidden_act":"silu","hidden_size":3584,"initializer_range":0.02,
    "intermediate_size":18944,"max_position_embeddings":131072,"max_window_layers":28,
    "model_type":"qwen2_moe","moe_intermediate_size":2560,"norm_topk_prob":false,
    "num_attention_heads":28,"num_experts":64,"num_experts_per_tok":8,"num_hidden_layers":28,
    "num_key_value_heads":4,"output_router_logits":false,"rms_norm_eps":1e-06,
    "rope_theta":1000000.0,"router_aux_loss_coef":0.001,
    "shared_expert_intermediate_size":20480,"sliding_window":65536,
    "tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.40.1",
    "use_cache":true,"use_sliding_window":false,"vocab_size":151936})");
}

TEST(HuggingFace, GoldenConfigs) {
  for (const std::string& name : test::golden_cases()) {
    SCOPED_TRACE(name);
    const ModelConfig model = read_hugging_face_config(test::golden(name)).model;
    const Hdf5File file = Hdf5File::open_read(test::golden(name + "/golden.h5"));
    const Hdf5Group root = file.root();
    EXPECT_EQ(model.hidden, root.int64_attribute("hidden"));
    EXPECT_EQ(model.layers, root.int64_attribute("num_layers"));
    EXPECT_EQ(model.vocab, root.int64_attribute("vocab"));
    EXPECT_EQ(model.moe.experts, root.int64_attribute("num_experts"));
    EXPECT_EQ(model.moe.top_k, root.int64_attribute("topk"));
    EXPECT_EQ(model.moe.auxiliary_coefficient, root.double_attribute("aux_loss_coeff"));
    EXPECT_EQ(model.heads, 4);
    EXPECT_EQ(model.kv_heads, 2);
    EXPECT_EQ(model.rope_theta, 1e6);
  }
  const ModelConfig qwen2 = read_hugging_face_config(test::golden("qwen2moe-tiny")).model;
  EXPECT_EQ(qwen2.family, Family::kQwen2Moe);
  EXPECT_EQ(qwen2.head_dim, 16);  // hidden / heads, the file has no head_dim
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.moe.normalize);
  EXPECT_EQ(qwen2.moe.shared_ffn, 96);
  EXPECT_TRUE(qwen2.moe.shared_gate);
  const HuggingFaceConfig qwen3 = read_hugging_face_config(test::golden("qwen3moe-tiny"));
  EXPECT_EQ(qwen3.type, ElementType::kF32);
  EXPECT_EQ(qwen3.model.head_dim, 32);
  EXPECT_TRUE(qwen3.model.qk_norm);
  EXPECT_TRUE(qwen3.model.moe.normalize);
  EXPECT_EQ(qwen3.model.norm_eps, 1e-6);
  EXPECT_TRUE(read_hugging_face_config(test::golden("mixtral-tiny-noaux")).model.tied);
}

TEST(HuggingFace, OlderSpellings) {
  const HuggingFaceConfig mixtral = parse(published_mixtral());
  EXPECT_EQ(mixtral.type, ElementType::kBf16);
  EXPECT_EQ(mixtral.model.head_dim, 128);
  EXPECT_EQ(mixtral.model.moe.ffn, 14336);
  EXPECT_EQ(plan::count_parameters(mixtral.model).total, 46'702'792'704);
  const HuggingFaceConfig qwen2 = parse(published_qwen2());
  EXPECT_EQ(plan::count_parameters(qwen2.model).total, 57'408'658'944);
  json qwen3 = golden_config("qwen3moe-tiny");
  qwen3["num_experts"] = qwen3["num_local_experts"];
  qwen3.erase("num_local_experts");
  EXPECT_EQ(parse(qwen3).model.moe.experts, 8);
}

TEST(HuggingFace, LayerPatterns) {
  json tree = golden_config("qwen2moe-tiny");
  tree["num_hidden_layers"] = 6;
  tree.erase("layer_types");
  tree["decoder_sparse_step"] = 2;
  tree["mlp_only_layers"] = {3};
  const ModelConfig model = parse(tree).model;
  EXPECT_EQ(model.moe_layer, (std::vector<bool>{false, true, false, false, false, true}));
  EXPECT_EQ(model.ffn, 160);
  tree["mlp_only_layers"] = {6};
  EXPECT_THAT(refusal(tree), HasSubstr("names layer 6"));
}

TEST(HuggingFace, WhatPleatDoesNotHaveIsRefused) {
  const std::vector<std::pair<const char*, json>> foreign{
      {"hidden_act", "gelu"},       {"attention_bias", true},
      {"sliding_window", 4096},     {"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}},
      {"attention_dropout", 0.1},   {"router_jitter_noise", 0.01},
      {"model_type", "llama"},      {"quantization_config", {{"bits", 4}}},
      {"torch_dtype", "float8"},    {"layer_types", {"sliding_attention"}},
      {"use_sliding_window", true}, {"rope_parameters", {{"rope_type", "llama3"}}}};
  for (const auto& [key, value] : foreign) {
    json tree = published_mixtral();
    tree[key] = value;
    const std::string text = refusal(tree);
    EXPECT_THAT(text, HasSubstr("PL0407")) << key;
    if (std::string(key) != "torch_dtype") {
      EXPECT_THAT(text, HasSubstr(key));
    }
  }
  json inactive = published_mixtral();
  inactive["sliding_window"] = nullptr;
  inactive["rope_scaling"] = nullptr;
  EXPECT_EQ(parse(inactive).model.layers, 32);
}

// Nothing says which of two values the weights were made with.
TEST(HuggingFace, ContradictoryKeysAreRefused) {
  const auto expect = [](const char* key, const json& value,
                         const std::vector<std::string>& parts) {
    json tree = published_mixtral();
    tree[key] = value;
    const std::string text = refusal(tree);
    EXPECT_THAT(text, HasSubstr("PL0410")) << key;
    for (const std::string& part : parts) EXPECT_THAT(text, HasSubstr(part));
  };
  const std::string top = "'rope_theta' is 1000000";
  expect("rope_parameters", {{"rope_theta", 10000.0}},
         {top, "'rope_parameters.rope_theta' is 10000\n"});
  expect("rope_scaling", {{"type", "default"}, {"rope_theta", 500000.0}},
         {top, "'rope_scaling.rope_theta' is 500000\n"});
  expect("num_experts", 16, {"'num_experts' is 16", "'num_local_experts' is 8\n"});
  json agreeing = published_mixtral();
  agreeing["num_experts"] = 8;
  agreeing["rope_parameters"] = {{"rope_theta", 1000000}, {"rope_type", "default"}};
  EXPECT_EQ(parse(agreeing).model.moe.experts, 8);
  EXPECT_EQ(parse(agreeing).model.rope_theta, 1e6);
}

TEST(HuggingFace, IllTypedValuesAreNamed) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "vocab_size",
                          "num_local_experts", "rope_theta", "model_type"}) {
    json tree = published_mixtral();
    for (const json& value : {json("x"), json(-1.5), json::array(), json(nullptr)}) {
      tree[key] = value;
      if (std::string(key) == "rope_theta" && value.is_number()) continue;
      EXPECT_THAT(refusal(tree), HasSubstr("config.json")) << key << value;
    }
  }
  json tree = published_mixtral();
  tree["num_key_value_heads"] = 5;
  EXPECT_THAT(refusal(tree), HasSubstr("config.json"));
  EXPECT_THAT(message_of<InputError>([] { read_hugging_face_config("/no/such/folder"); }),
              HasSubstr("PL0406"));
}

void expect_same(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.family, b.family);
  EXPECT_EQ(
      std::tie(a.layers, a.hidden, a.heads, a.kv_heads, a.head_dim, a.ffn, a.vocab),
      std::tie(b.layers, b.hidden, b.heads, b.kv_heads, b.head_dim, b.ffn, b.vocab));
  EXPECT_EQ(std::tie(a.rope_theta, a.norm_eps, a.qkv_bias, a.qk_norm, a.tied),
            std::tie(b.rope_theta, b.norm_eps, b.qkv_bias, b.qk_norm, b.tied));
  EXPECT_EQ(std::tie(a.moe.experts, a.moe.top_k, a.moe.ffn, a.moe.shared_ffn),
            std::tie(b.moe.experts, b.moe.top_k, b.moe.ffn, b.moe.shared_ffn));
  EXPECT_EQ(a.moe.normalize, b.moe.normalize);
  EXPECT_EQ(a.moe_layer, b.moe_layer);
}

TEST(HuggingFace, WrittenConfigsReadBack) {
  std::vector<HuggingFaceConfig> configs{parse(published_mixtral()),
                                         parse(published_qwen2())};
  for (const std::string& name : test::golden_cases()) {
    configs.push_back(read_hugging_face_config(test::golden(name)));
  }
  for (const HuggingFaceConfig& config : configs) {
    for (const std::string& original : {std::string(), config.text}) {
      const std::string text =
          hugging_face_config_text(config.model, ElementType::kF16, original);
      const HuggingFaceConfig again = parse_hugging_face_config(text, "again");
      EXPECT_EQ(again.type, ElementType::kF16);
      expect_same(again.model, config.model);
      // Both generations of transformers find what they look for.
      const json tree = json::parse(text);
      EXPECT_EQ(tree["rope_theta"], config.model.rope_theta);
      EXPECT_EQ(tree["rope_parameters"]["rope_theta"], config.model.rope_theta);
      EXPECT_EQ(tree["torch_dtype"], "float16");
    }
  }
}

TEST(HuggingFace, OtherKeysOfTheOriginalStay) {
  json tree = published_mixtral();
  tree["my_note"] = "kept";
  const ModelConfig model = parse(tree).model;
  const json again =
      json::parse(hugging_face_config_text(model, ElementType::kBf16, tree.dump()));
  EXPECT_EQ(again["my_note"], "kept");
  EXPECT_EQ(again["max_position_embeddings"], 32768);
}

TEST(HuggingFace, AModelThatTheFamilyCannotSayIsRefused) {
  ModelConfig model = parse(published_mixtral()).model;
  model.qk_norm = true;
  EXPECT_THAT(message_of<InputError>(
                  [&] { hugging_face_config_text(model, ElementType::kF32, ""); }),
              HasSubstr("no way to say qk_norm"));
  model.qk_norm = false;
  model.moe_layer[3] = false;
  model.ffn = 64;
  EXPECT_THAT(message_of<InputError>(
                  [&] { hugging_face_config_text(model, ElementType::kF32, ""); }),
              HasSubstr("moe_layer"));
}

TEST(HuggingFace, AModelWithoutExpertsIsWrittenAsAllDense) {
  for (const auto family : {plan::Family::kQwen2Moe, plan::Family::kQwen3Moe}) {
    ModelConfig model = parse(published_mixtral()).model;
    model.family = family;
    model.qkv_bias = family == plan::Family::kQwen2Moe;
    model.qk_norm = family == plan::Family::kQwen3Moe;
    model.moe = {};
    model.moe.experts = 0;
    model.moe_layer.assign(model.moe_layer.size(), false);
    model.ffn = 64;
    const std::string text = hugging_face_config_text(model, ElementType::kF32, "");
    const ModelConfig again = parse_hugging_face_config(text, "config.json").model;
    EXPECT_FALSE(again.has_moe_layers());
    EXPECT_EQ(again.ffn, 64);
  }
  ModelConfig mixtral = parse(published_mixtral()).model;
  mixtral.moe = {};
  mixtral.moe.experts = 0;
  mixtral.moe_layer.assign(mixtral.moe_layer.size(), false);
  mixtral.ffn = 64;
  EXPECT_THAT(message_of<InputError>(
                  [&] { hugging_face_config_text(mixtral, ElementType::kF32, ""); }),
              HasSubstr("moe_layer"));
}

std::shared_ptr<tensor::ParameterLayout> layout_of(const SafetensorsReader& reader) {
  auto layout = std::make_shared<tensor::ParameterLayout>();
  for (const SafetensorsEntry& entry : reader.entries()) {
    layout->add_block(0, {test::parameter(entry.name, entry.shape)});
  }
  return layout;
}

TEST(HuggingFace, LoadsWeights) {
  const SafetensorsReader reader(test::golden("qwen3moe-tiny"));
  const auto layout = layout_of(reader);
  layout->finalize();
  const tensor::FlatTensors<double> weights(layout, "w");
  load_hugging_face_weights<double>(test::golden("qwen3moe-tiny"), *layout, weights);
  for (const SafetensorsEntry& entry : reader.entries()) {
    std::vector<double> expected(
        static_cast<std::size_t>(tensor::element_count(entry.shape)));
    reader.read<double>(entry, expected);
    const auto found = Kokkos::create_mirror_view_and_copy(
        Kokkos::HostSpace(), weights.flat(layout->at(entry.name)));
    EXPECT_EQ(std::vector<double>(found.data(), found.data() + found.size()), expected);
  }
}

// A rank that holds rows 3 to 6 and columns 5 to 9 of one matrix.
TEST(HuggingFace, LoadsTheBoxOfARank) {
  const std::string name = "model.layers.1.self_attn.o_proj.weight";
  const SafetensorsReader reader(test::golden("qwen3moe-tiny"));
  const auto whole = layout_of(reader);
  whole->finalize();
  const tensor::FlatTensors<double> all(whole, "all");
  load_hugging_face_weights<double>(test::golden("qwen3moe-tiny"), *whole, all);
  tensor::ParameterSpec box = test::parameter(name, whole->at(name).global_shape);
  box.local_shape = {4, 5};
  box.local_offset = {3, 5};
  auto layout = std::make_shared<tensor::ParameterLayout>();
  layout->add_block(0, {box});
  layout->finalize();
  const tensor::FlatTensors<double> part(layout, "part");
  load_hugging_face_weights<double>(test::golden("qwen3moe-tiny"), *whole, part);
  const auto expected =
      Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), all.flat(whole->at(name)));
  const auto found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(),
                                                         part.flat(layout->at(name)));
  const auto columns = static_cast<std::size_t>(box.global_shape[1]);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(found(i), expected((3 + i / 5) * columns + 5 + i % 5)) << i;
  }
}

TEST(HuggingFace, MissingAndUnexpectedTensorsAreNamed) {
  const SafetensorsReader reader(test::golden("mixtral-tiny"));
  const auto more = layout_of(reader);
  more->add_block(0, {test::parameter("model.extra.weight", {3})});
  more->finalize();
  EXPECT_THAT(message_of<InputError>([&] { check_hugging_face_tensors(reader, *more); }),
              HasSubstr("'model.extra.weight' is missing"));
  auto fewer = std::make_shared<tensor::ParameterLayout>();
  fewer->add_block(0, {test::parameter("model.norm.weight", {63})});
  fewer->finalize();
  const std::string text =
      message_of<InputError>([&] { check_hugging_face_tensors(reader, *fewer); });
  EXPECT_THAT(text,
              HasSubstr("'model.norm.weight' has shape [64], config.json says [63]"));
  EXPECT_THAT(text, HasSubstr("'lm_head.weight' is not in the model"));
}

/// The tensors of mixtral-tiny, which has a head, but for those that are left out.
std::shared_ptr<tensor::ParameterLayout> layout_without(const SafetensorsReader& reader,
                                                        const std::string& left_out) {
  auto layout = std::make_shared<tensor::ParameterLayout>();
  for (const SafetensorsEntry& entry : reader.entries()) {
    if (entry.name == left_out) continue;
    layout->add_block(0, {test::parameter(entry.name, entry.shape)});
  }
  layout->finalize();
  return layout;
}

TEST(HuggingFace, TheHeadMayBeMissingOfTiedModelsOnly) {
  const SafetensorsReader headless(test::golden("mixtral-tiny-noaux"));
  ASSERT_FALSE(headless.contains("lm_head.weight"));
  const auto tied = layout_of(headless);
  const auto untied = layout_of(headless);
  tied->finalize();
  check_hugging_face_tensors(headless, *tied);
  untied->add_block(0, {test::parameter("lm_head.weight", {256, 64})});
  untied->finalize();
  EXPECT_THAT(
      message_of<InputError>([&] { check_hugging_face_tensors(headless, *untied); }),
      testing::AllOf(
          HasSubstr("PL0408: '" + headless.files().front() + "' does not hold"),
          HasSubstr("'lm_head.weight' is missing\nHINT: "),
          HasSubstr("\"tie_word_embeddings\": true")));
  const SafetensorsReader with_head(test::golden("mixtral-tiny"));
  const auto without = layout_without(with_head, "lm_head.weight");
  EXPECT_THAT(
      message_of<InputError>([&] { check_hugging_face_tensors(with_head, *without); }),
      testing::AllOf(HasSubstr("'lm_head.weight' differs from the embedding"),
                     HasSubstr("\"tie_word_embeddings\": false")));
}

// Random damage to a config: a model within bounds, or an InputError.
TEST(HuggingFace, FuzzOfConfigs) {
  constexpr int kInputs = 6000;
  const std::vector<std::string> texts{published_mixtral().dump(1),
                                       published_qwen2().dump(1),
                                       golden_config("qwen3moe-tiny").dump(1)};
  const std::vector<std::string> pieces{"-1",    "0",    "1e308", "9223372036854775807",
                                        "null",  "true", "[]",    "{}",
                                        "\"x\"", "0.5",  "65536", ",",
                                        "\"",    "}"};
  test::Dice dice(5);
  int refused = 0;
  for (int i = 0; i < kInputs; ++i) {
    std::string text = texts[dice.below(texts.size())];
    const std::uint64_t changes = 1 + dice.below(3);
    for (std::uint64_t change = 0; change < changes; ++change) {
      const std::size_t colon = text.find(": ", dice.below(text.size()));
      if (dice.below(3) != 0 && colon != std::string::npos) {
        const std::size_t end = std::min(text.find_first_of(",\n", colon), text.size());
        text.replace(colon + 2, end - colon - 2, pieces[dice.below(pieces.size())]);
      } else {
        text[dice.below(text.size())] = static_cast<char>(dice.below(256));
      }
    }
    try {
      const HuggingFaceConfig config = parse_hugging_face_config(text, "config.json");
      EXPECT_LE(config.model.moe_layer.size(), 65536U);
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kInputs / 4);
  EXPECT_LT(refused, kInputs);
}

}  // namespace
}  // namespace pleat::io
