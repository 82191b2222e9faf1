// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The shape of the model: from `model.init`, from `model.preset`, or key by key.
#include <algorithm>

#include "pleat/base/error.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/hugging_face.hpp"
#include "pleat/io/json.hpp"
#include "run_config_steps.hpp"

namespace pleat::train {
namespace {

/// The coefficient that Hugging Face itself would train with.
double hugging_face_auxiliary(const io::HuggingFaceConfig& config,
                              const std::string& place) {
  const nlohmann::json json = io::parse_json(config.text, place);
  const auto flag = json.find("output_router_logits");
  const bool active = flag != json.end() && flag->is_boolean() && flag->get<bool>();
  return active ? config.model.moe.auxiliary_coefficient : 0.0;
}

/// The model that init names; its auxiliary coefficient is the default for the deck.
plan::ModelConfig read_init(const std::string& path) {
  if (io::is_hugging_face_folder(path)) {
    io::HuggingFaceConfig config = io::read_hugging_face_config(path);
    config.model.moe.auxiliary_coefficient =
        hugging_face_auxiliary(config, path + "/config.json");
    return config.model;
  }
  PLEAT_REQUIRE(
      io::is_checkpoint(path), InputError, "PL0213",
      "'{}' is neither a Hugging Face folder (with a config.json), nor a checkpoint, nor the "
      "folder of a run with checkpoints\n"
      "HINT: the path is relative to the deck's folder or the working directory.",
      path);
  plan::ModelConfig model = io::CheckpointReader(path).info().model;
  model.moe.auxiliary_coefficient = 0.0;
  return model;
}

/// What belongs to the model itself, and not to how it is trained.
bool is_shape_key(const io::DeckEntry& entry) {
  const std::string section = entry.section();
  return (section == "model" || section == "moe") &&
         entry.key.restart == io::Restart::kRefused;
}

void require_agreement(const io::Deck& deck, const io::DeckKeys& keys,
                       const std::string& init) {
  for (const io::DeckEntry& entry : keys.entries()) {
    const std::string& name = entry.key.name;
    if (!is_shape_key(entry) || !deck.given(name)) continue;
    PLEAT_REQUIRE(deck.value(name) == entry.current(), InputError, "PL0212",
                  "{}: {} = {}, but model.init '{}' has {}\n"
                  "HINT: leave the key out; the shape comes from model.init.",
                  deck.where(name), name, io::deck_text(deck.value(name)), init,
                  io::deck_text(entry.current()));
  }
}

/// A model without MoE layers is written as one without experts.
void take_layer_pattern(DeckFields& fields) {
  plan::ModelConfig& model = fields.config.model;
  fields.dense_layers.clear();
  if (!model.has_moe_layers()) {
    model.moe.experts = 0;
    return;
  }
  for (std::size_t layer = 0; layer < model.moe_layer.size(); ++layer) {
    if (!model.moe_layer[layer])
      fields.dense_layers.push_back(static_cast<std::int64_t>(layer));
  }
}

void resolve_from_init(const io::Deck& deck, const io::DeckKeys& keys,
                       DeckFields& fields) {
  RunConfig& config = fields.config;
  PLEAT_REQUIRE(fields.preset.empty(), InputError, "PL0209",
                "{}: model.preset and model.init are both given\n"
                "HINT: the shape comes from model.init; leave model.preset out.",
                deck.where("model.preset"));
  config.model_init = deck.find_path(config.model_init);
  const plan::ModelConfig from_deck = config.model;
  try {
    if (!io::is_hugging_face_folder(config.model_init))
      config.model_init = find_checkpoint(config.model_init);
    config.model = read_init(config.model_init);
  } catch (const InputError& error) {
    fail_at(deck.where("model.init") + ": model.init", error);
  }
  take_layer_pattern(fields);
  require_agreement(deck, keys, config.model_init);
  // How it is trained is the deck's to say.
  plan::MoeConfig& moe = config.model.moe;
  if (deck.given("moe.aux_loss.coeff"))
    moe.auxiliary_coefficient = from_deck.moe.auxiliary_coefficient;
  moe.auxiliary_scope = from_deck.moe.auxiliary_scope;
  moe.z_coefficient = from_deck.moe.z_coefficient;
  moe.bias_update_rate = from_deck.moe.bias_update_rate;
  moe.drop = from_deck.moe.drop;
  config.model.init_std = from_deck.init_std;
}

void require_sizes(const io::Deck& deck) {
  for (const char* name :
       {"model.layers", "model.hidden", "model.heads", "model.vocab"}) {
    PLEAT_REQUIRE(deck.given(name), InputError, "PL0208",
                  "{}: {}: missing, expected an integer\n"
                  "HINT: give the sizes of the model, or model.preset, or model.init.",
                  deck.where(name), name);
  }
}

void fill_attention(const io::Deck& deck, plan::ModelConfig& model) {
  if (!deck.given("model.kv_heads")) model.kv_heads = model.heads;
  if (deck.given("model.head_dim")) return;
  PLEAT_REQUIRE(model.hidden % model.heads == 0, InputError, "PL0209",
                "{}: model.hidden = {} is not a multiple of model.heads = {}\n"
                "HINT: change one of them, or give model.head_dim.",
                deck.where("model.heads"), model.hidden, model.heads);
  model.head_dim = model.hidden / model.heads;
}

void fill_layer_pattern(const io::Deck& deck, DeckFields& fields) {
  plan::ModelConfig& model = fields.config.model;
  std::vector<std::int64_t>& dense = fields.dense_layers;
  std::sort(dense.begin(), dense.end());
  const auto twice = std::adjacent_find(dense.begin(), dense.end());
  PLEAT_REQUIRE(twice == dense.end(), InputError, "PL0209",
                "{}: moe.dense_layers: layer {} is given twice\n"
                "HINT: one of them is probably meant to be another layer.",
                deck.where("moe.dense_layers"), *twice);
  model.moe_layer.assign(static_cast<std::size_t>(model.layers), model.moe.experts > 0);
  for (const std::int64_t layer : dense) {
    PLEAT_REQUIRE(layer < model.layers, InputError, "PL0209",
                  "{}: moe.dense_layers: there is no layer {}, expected 0 to {}\n"
                  "HINT: layers are counted from 0.",
                  deck.where("moe.dense_layers"), layer, model.layers - 1);
    model.moe_layer[static_cast<std::size_t>(layer)] = false;
  }
  PLEAT_REQUIRE(
      !model.has_moe_layers() || model.moe.ffn > 0, InputError, "PL0208",
      "{}: moe.ffn: missing, expected an integer, at least 1\n"
      "HINT: it is the inner width of one expert; needed since moe.experts = {}.",
      deck.where("moe.ffn"), model.moe.experts);
}

void resolve_from_keys(const io::Deck& deck, const io::DeckKeys& keys,
                       DeckFields& fields) {
  if (!fields.preset.empty()) {
    fields.config.model = plan::preset(fields.preset);
    deck.store(keys);  // single keys replace what the preset says
    fields.preset.clear();
  } else {
    require_sizes(deck);
    fill_attention(deck, fields.config.model);
  }
  fill_layer_pattern(deck, fields);
}

}  // namespace

void fail_at(const std::string& place, const InputError& error) {
  const std::string message = error.what();
  // what() begins with the id.
  throw InputError(error.id(), place + message.substr(error.id().size()));
}

void resolve_model(const io::Deck& deck, const io::DeckKeys& keys, DeckFields& fields) {
  if (fields.config.model_init.empty()) {
    resolve_from_keys(deck, keys, fields);
  } else {
    resolve_from_init(deck, keys, fields);
  }
  try {
    plan::validate(fields.config.model);
  } catch (const InputError& error) {
    fail_at(deck.path(), error);
  }
}

}  // namespace pleat::train
