// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The facts about checkpoints as JSON. Members have the names of the attributes that
/// docs/checkpoints.md lists.
#include <filesystem>

#include "inspect_text.hpp"
#include "pleat/io/json.hpp"

namespace pleat::cli {
namespace {

using nlohmann::ordered_json;

/// Whatever bytes a damaged file holds, the result is JSON.
std::string dumped(const ordered_json& tree) {
  return tree.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

ordered_json model_of(const plan::ModelConfig& model) {
  const plan::MoeConfig& moe = model.moe;
  return {{"layers", model.layers},
          {"hidden", model.hidden},
          {"heads", model.heads},
          {"kv_heads", model.kv_heads},
          {"head_dim", model.head_dim},
          {"ffn", model.ffn},
          {"vocab", model.vocab},
          {"rope_theta", model.rope_theta},
          {"norm_eps", model.norm_eps},
          {"qkv_bias", model.qkv_bias},
          {"qk_norm", model.qk_norm},
          {"tied", model.tied},
          {"moe_layer", model.moe_layer},
          {"experts", moe.experts},
          {"top_k", moe.top_k},
          {"moe_ffn", moe.ffn},
          {"shared_ffn", moe.shared_ffn},
          {"shared_gate", moe.shared_gate},
          {"normalize", moe.normalize}};
}

void add_info(ordered_json& tree, const io::CheckpointInfo& info) {
  tree["format_version"] = info.format_version;
  tree["step"] = info.step;
  tree["next_sample"] = info.next_sample;
  tree["precision"] = info.precision;
  tree["grid"] = info.grid;
  tree["build"] = info.build;
  tree["history"] = lines_of(info.history);
  tree["skipped"] = info.skipped;
  tree["rollbacks"] = info.rollbacks;
  tree["recent_losses"] = info.recent_losses;
  tree["data"] = lines_of(info.data_identity);
  tree["model"] = model_of(info.model);
  tree["deck"] = info.deck;
}

ordered_json tree_of(const TensorFacts& tensor) {
  ordered_json tree{{"path", io::tensor_path(tensor.group, tensor.name)},
                    {"type", io::element_name(tensor.type)},
                    {"shape", tensor.shape},
                    {"checksum", io::checksum_text(tensor.checksum)},
                    {"verified", tensor.damage.empty()}};
  if (tensor.statistics) {
    const Statistics& s = *tensor.statistics;
    tree["finite"] = s.finite;
    tree["not_finite"] = s.not_finite;
    tree["min"] = s.least;
    tree["max"] = s.largest;
    tree["mean"] = s.mean;
    tree["rms"] = s.rms;
  }
  return tree;
}

ordered_json file_of(const CheckpointFacts& facts) {
  return {{"file", facts.path},
          {"bytes", facts.bytes},
          {"modified", facts.modified},
          {"damage", facts.damages()}};
}

ordered_json tree_of(const CheckpointFacts& facts) {
  ordered_json tree = file_of(facts);
  if (facts.info) add_info(tree, *facts.info);
  tree["tensors"] = ordered_json::array();
  for (const TensorFacts& tensor : facts.tensors) tree["tensors"].push_back(tree_of(tensor));
  return tree;
}

}  // namespace

std::string checkpoint_json(const CheckpointFacts& facts) {
  ordered_json tree{{"kind", "checkpoint"}};
  tree.update(tree_of(facts));
  return dumped(tree);
}

std::string run_json(const RunFacts& facts) {
  ordered_json tree{{"kind", "run"}, {"folder", facts.folder}, {"latest", facts.latest}};
  tree["unfinished"] = facts.unfinished;
  tree["checkpoints"] = ordered_json::array();
  for (const CheckpointFacts& checkpoint : facts.checkpoints) {
    ordered_json entry = file_of(checkpoint);
    const std::string name = std::filesystem::path(checkpoint.path).filename().string();
    entry["latest"] = name == facts.latest;
    if (checkpoint.info) entry["step"] = checkpoint.info->step;
    tree["checkpoints"].push_back(std::move(entry));
  }
  const CheckpointFacts* newest = facts.newest_usable();
  tree["newest"] = newest != nullptr ? tree_of(*newest) : ordered_json();
  return dumped(tree);
}

}  // namespace pleat::cli
