// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/checkpoint_info.hpp"

#include <array>
#include <charconv>
#include <utility>

#include "byte_archive.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/random.hpp"

namespace pleat::io {

namespace {

constexpr const char* kFormatName = "pleat checkpoint";

template <class Enum>
using Spelling = std::pair<Enum, const char*>;

constexpr std::array<Spelling<plan::Family>, 3> kFamilies{
    {{plan::Family::kMixtral, "mixtral"},
     {plan::Family::kQwen2Moe, "qwen2_moe"},
     {plan::Family::kQwen3Moe, "qwen3_moe"}}};
constexpr std::array<Spelling<plan::RouterScore>, 3> kScores{
    {{plan::RouterScore::kSoftmaxBeforeTopK, "softmax_before_top_k"},
     {plan::RouterScore::kSoftmaxAfterTopK, "softmax_after_top_k"},
     {plan::RouterScore::kSigmoid, "sigmoid"}}};
constexpr std::array<Spelling<plan::AuxiliaryScope>, 3> kScopes{
    {{plan::AuxiliaryScope::kMicroBatch, "micro_batch"},
     {plan::AuxiliaryScope::kSequence, "sequence"},
     {plan::AuxiliaryScope::kGlobalBatch, "global_batch"}}};
constexpr std::array<Spelling<plan::DropScope>, 2> kDropScopes{
    {{plan::DropScope::kSubSequence, "subsequence"},
     {plan::DropScope::kSequence, "sequence"}}};
constexpr std::array<Spelling<plan::DropPolicy>, 2> kDropPolicies{
    {{plan::DropPolicy::kProbs, "probs"}, {plan::DropPolicy::kPosition, "position"}}};

/// Writes fields as attributes; Load below has the same calls, so one list of fields
/// serves both directions.
class Save {
 public:
  explicit Save(Hdf5Group& root) : root_(root) {}
  void operator()(const char* name, const std::string& value) {
    root_.set_attribute(name, std::string_view(value));
  }
  void operator()(const char* name, const std::int64_t& value) {
    root_.set_attribute(name, value);
  }
  void operator()(const char* name, const double& value) {
    root_.set_attribute(name, value);
  }
  void operator()(const char* name, const bool& value) {
    root_.set_attribute(name, std::int64_t{value});
  }
  void operator()(const char* name, const std::vector<double>& value) {
    // HDF5 has arrays without elements, but other programs stumble over them.
    if (!value.empty()) root_.set_attribute(name, std::span<const double>(value));
  }
  void optional(const char* name, const std::string& value) {
    if (!value.empty()) (*this)(name, value);
  }
  void operator()(const char* name, const std::vector<bool>& value) {
    const std::vector<std::int64_t> flags(value.begin(), value.end());
    root_.set_attribute(name, std::span<const std::int64_t>(flags));
  }
  template <class Enum, std::size_t N>
  void choice(const char* name, const Enum& value,
              const std::array<Spelling<Enum>, N>& all) {
    for (const auto& [candidate, text] : all) {
      if (candidate == value) return root_.set_attribute(name, text);
    }
    PLEAT_FAIL(InternalError, "PL0100", "attribute '{}' has no word for value {}", name,
               static_cast<int>(value));
  }

 private:
  Hdf5Group& root_;
};

class Load {
 public:
  explicit Load(const Hdf5Group& root) : root_(root) {}
  void operator()(const char* name, std::string& value) {
    value = root_.string_attribute(name);
  }
  void operator()(const char* name, std::int64_t& value) {
    value = root_.int64_attribute(name);
  }
  void operator()(const char* name, double& value) {
    value = root_.double_attribute(name);
  }
  void operator()(const char* name, bool& value) {
    value = root_.int64_attribute(name) != 0;
  }
  void operator()(const char* name, std::vector<double>& value) {
    value.clear();
    if (root_.has_attribute(name)) value = root_.double_array_attribute(name);
  }
  void optional(const char* name, std::string& value) {
    value = root_.has_attribute(name) ? root_.string_attribute(name) : "";
  }
  void operator()(const char* name, std::vector<bool>& value) {
    value.clear();
    for (const std::int64_t flag : root_.int64_array_attribute(name)) {
      value.push_back(flag != 0);
    }
  }
  template <class Enum, std::size_t N>
  void choice(const char* name, Enum& value, const std::array<Spelling<Enum>, N>& all) {
    const std::string text = root_.string_attribute(name);
    for (const auto& [candidate, spelling] : all) {
      if (text != spelling) continue;
      value = candidate;
      return;
    }
    PLEAT_FAIL(InputError, "PL0302", "{}, attribute '{}' is '{}', which is not known",
               root_.place(), name, text);
  }

 private:
  const Hdf5Group& root_;
};

/// Collects fields as bytes; Unpack below takes them out again.
class Pack {
 public:
  explicit Pack(ByteWriter& out) : out_(out) {}
  template <class T>
  void operator()(const char*, const T& value) {
    out_.put(value);
  }
  void optional(const char*, const std::string& value) { out_.put(value); }
  template <class Enum, std::size_t N>
  void choice(const char*, const Enum& value, const std::array<Spelling<Enum>, N>&) {
    out_.put(static_cast<std::int64_t>(value));
  }

 private:
  ByteWriter& out_;
};

class Unpack {
 public:
  explicit Unpack(ByteReader& in) : in_(in) {}
  template <class T>
  void operator()(const char*, T& value) {
    in_.get(value);
  }
  void optional(const char*, std::string& value) { in_.get(value); }
  template <class Enum, std::size_t N>
  void choice(const char*, Enum& value, const std::array<Spelling<Enum>, N>&) {
    std::int64_t number = 0;
    in_.get(number);
    value = static_cast<Enum>(number);
  }

 private:
  ByteReader& in_;
};

/// What format version 2 added.
template <class Visitor, class Moe>
void visit_version_two(Visitor& field, Moe& moe) {
  field("moe.groups", moe.groups);
  field("moe.top_groups", moe.top_groups);
  field("moe.routed_scale", moe.routed_scale);
  field("moe.bias_update_rate", moe.bias_update_rate);
  field("moe.drop.capacity_factor", moe.drop.capacity_factor);
  field.choice("moe.drop.scope", moe.drop.scope, kDropScopes);
  field.choice("moe.drop.policy", moe.drop.policy, kDropPolicies);
  field("moe.drop.pad", moe.drop.pad);
}

/// What format version 3 added.
template <class Visitor, class Info>
void visit_version_three(Visitor& field, Info& info) {
  field("history", info.history);
  field("skipped", info.skipped);
  field("rollbacks", info.rollbacks);
  field("recent_losses", info.recent_losses);
  field.optional("data_identity", info.data_identity);
}

/// The attributes of a checkpoint, each once.
template <class Visitor, class Info>
void visit_fields(Visitor& field, Info& info) {
  field("step", info.step);
  field("next_sample", info.next_sample);
  field("precision", info.precision);
  field("deck", info.deck);
  field("grid", info.grid);
  field("build", info.build);
  field("hugging_face_config", info.hugging_face_config);
  auto& model = info.model;
  field.choice("model.family", model.family, kFamilies);
  field("model.layers", model.layers);
  field("model.hidden", model.hidden);
  field("model.heads", model.heads);
  field("model.kv_heads", model.kv_heads);
  field("model.head_dim", model.head_dim);
  field("model.ffn", model.ffn);
  field("model.vocab", model.vocab);
  field("model.rope_theta", model.rope_theta);
  field("model.norm_eps", model.norm_eps);
  field("model.qkv_bias", model.qkv_bias);
  field("model.qk_norm", model.qk_norm);
  field("model.tied", model.tied);
  field("model.init_std", model.init_std);
  field("model.moe_layer", model.moe_layer);
  field("moe.experts", model.moe.experts);
  field("moe.top_k", model.moe.top_k);
  field("moe.ffn", model.moe.ffn);
  field("moe.shared_ffn", model.moe.shared_ffn);
  field("moe.shared_gate", model.moe.shared_gate);
  field.choice("moe.score", model.moe.score, kScores);
  field("moe.normalize", model.moe.normalize);
  field("moe.auxiliary_coefficient", model.moe.auxiliary_coefficient);
  field.choice("moe.auxiliary_scope", model.moe.auxiliary_scope, kScopes);
  field("moe.z_coefficient", model.moe.z_coefficient);
  if (info.format_version >= 2) visit_version_two(field, model.moe);
  if (info.format_version >= 3) visit_version_three(field, info);
}

}  // namespace

void write_checkpoint_info(Hdf5Group& root, const CheckpointInfo& info) {
  root.set_attribute("format", kFormatName);
  root.set_attribute("format_version", info.format_version);
  Save save(root);
  visit_fields(save, info);
}

CheckpointInfo read_checkpoint_info(const Hdf5Group& root) {
  const bool ours =
      root.has_attribute("format") && root.string_attribute("format") == kFormatName;
  PLEAT_REQUIRE(ours && root.has_attribute("format_version"), InputError, "PL0305",
                "{} is an HDF5 file, but not a checkpoint of Pleat", root.place());
  CheckpointInfo info;
  info.format_version = root.int64_attribute("format_version");
  PLEAT_REQUIRE(
      info.format_version >= 1 && info.format_version <= kCheckpointFormat, InputError,
      "PL0306",
      "{} has format version {}, this program reads 1 to {}\nHINT: use the program "
      "that wrote it, or a newer one.",
      root.place(), info.format_version, kCheckpointFormat);
  Load load(root);
  visit_fields(load, info);
  return info;
}

std::string pack_checkpoint_info(const CheckpointInfo& info) {
  ByteWriter bytes;
  bytes.put(info.format_version);
  Pack pack(bytes);
  visit_fields(pack, info);
  return bytes.take();
}

CheckpointInfo unpack_checkpoint_info(const std::string& packed) {
  ByteReader bytes(packed);
  CheckpointInfo info;
  bytes.get(info.format_version);
  Unpack unpack(bytes);
  visit_fields(unpack, info);
  return info;
}

std::int64_t checkpoint_metadata_bytes(const CheckpointInfo& info, std::int64_t tensors) {
  constexpr std::int64_t kHead = 64 << 10;   // attributes, groups
  constexpr std::int64_t kPerTensor = 1024;  // object header, link
  const std::size_t texts = info.deck.size() + info.hugging_face_config.size() +
                            info.history.size() + info.data_identity.size();
  return kHead + 2 * static_cast<std::int64_t>(texts) + tensors * kPerTensor;
}

std::string checkpoint_table_line(const std::string& path, ElementType type,
                                  const tensor::Shape& shape, std::uint64_t checksum) {
  return fmt::format("{} {} {} {}\n", path, element_name(type), fmt::join(shape, "x"),
                     checksum_text(checksum));
}

std::uint64_t metadata_checksum(const Hdf5Group& root, const std::string& table) {
  std::string text;
  for (const std::string& name : root.attribute_names()) {
    if (name == "metadata_checksum") continue;
    text += name + "=" + root.attribute_text(name, true) + "\n";
  }
  return hash_name(text + table);
}

std::string checksum_text(std::uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

std::uint64_t parse_checksum(const std::string& text, const std::string& place) {
  std::uint64_t checksum = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, checksum, 16);
  PLEAT_REQUIRE(error == std::errc() && stop == end && text.size() == 16, InputError,
                "PL0307", "{}: '{}' is not a checksum", place, text);
  return checksum;
}

}  // namespace pleat::io
