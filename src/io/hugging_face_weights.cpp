// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "pleat/io/hugging_face.hpp"

namespace pleat::io {

namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

/// Files of tied models may repeat the embedding as the head, and old ones hold the
/// rotary table; neither is a parameter.
bool is_redundant(const SafetensorsReader& reader, const std::string& name) {
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  return name == kHead && reader.contains(kEmbedding) &&
         reader.read_raw(reader.at(name)) == reader.read_raw(reader.at(kEmbedding));
}

bool is_tied(const tensor::ParameterLayout& layout) {
  return layout.contains(kEmbedding) && !layout.contains(kHead);
}

std::vector<std::string> differences(const SafetensorsReader& reader,
                                     const tensor::ParameterLayout& layout) {
  std::vector<std::string> found;
  for (const tensor::ParameterSpec& parameter : layout.parameters()) {
    if (!reader.contains(parameter.name)) {
      found.push_back(fmt::format("'{}' is missing", parameter.name));
      continue;
    }
    const tensor::Shape& shape = reader.at(parameter.name).shape;
    if (shape == parameter.global_shape) continue;
    found.push_back(fmt::format("'{}' has shape [{}], config.json says [{}]",
                                parameter.name, fmt::join(shape, ", "),
                                fmt::join(parameter.global_shape, ", ")));
  }
  for (const SafetensorsEntry& entry : reader.entries()) {
    if (layout.contains(entry.name) || is_redundant(reader, entry.name)) continue;
    const bool second_head = entry.name == kHead && is_tied(layout);
    found.push_back(fmt::format("'{}' {}", entry.name,
                                second_head ? "differs from the embedding to which "
                                              "config.json ties the head"
                                            : "is not in the model"));
  }
  return found;
}

/// The head is what config.json and files most often disagree about.
std::string advice(const SafetensorsReader& reader,
                   const tensor::ParameterLayout& layout) {
  if (layout.contains(kHead) && !reader.contains(kHead)) {
    return "without a head of its own a model uses its embedding as head: if this one "
           "does, set \"tie_word_embeddings\": true in config.json; if not, the files "
           "are incomplete: download them again.";
  }
  if (is_tied(layout) && reader.contains(kHead)) {
    return "if the model has a head of its own, set \"tie_word_embeddings\": false in "
           "config.json.";
  }
  return "config.json and weights are of different models, or files are missing: "
         "download all files of the model again.";
}

std::string file_names(const SafetensorsReader& reader) {
  const std::vector<std::string>& files = reader.files();
  if (files.size() == 1) return fmt::format("'{}' does", files.front());
  return fmt::format("'{}' and {} more shard{} do", files.front(), files.size() - 1,
                     files.size() == 2 ? "" : "s");
}

/// Copies the box that this rank holds out of a whole tensor, row by row.
template <class T>
void copy_box(const tensor::ParameterSpec& parameter, const std::vector<T>& whole,
              T* local) {
  const std::size_t rank = parameter.global_shape.size();
  const std::int64_t run = rank == 0 ? 1 : parameter.local_shape.back();
  const std::int64_t rows = parameter.local_count() / std::max<std::int64_t>(1, run);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t rest = row;
    std::int64_t stride = 1;
    std::int64_t index = 0;
    for (std::size_t dim = rank; dim-- > 0;) {
      const bool last = dim + 1 == rank;
      const std::int64_t position = last ? 0 : rest % parameter.local_shape[dim];
      if (!last) rest /= parameter.local_shape[dim];
      index += (parameter.local_offset[dim] + position) * stride;
      stride *= parameter.global_shape[dim];
    }
    std::copy_n(whole.begin() + index, run, local + row * run);
  }
}

}  // namespace

void check_hugging_face_tensors(const SafetensorsReader& reader,
                                const tensor::ParameterLayout& layout) {
  constexpr std::size_t kShown = 5;
  std::vector<std::string> found = differences(reader, layout);
  if (found.empty()) return;
  const std::size_t all = found.size();
  found.resize(std::min(all, kShown));
  PLEAT_FAIL(
      InputError, "PL0408",
      "{} not hold the tensors of config.json; {} of {} difference{}:\n  {}\nHINT: {}",
      file_names(reader), found.size(), all, all == 1 ? "" : "s",
      fmt::join(found, "\n  "), advice(reader, layout));
}

template <class T>
void load_hugging_face_weights(const std::string& folder,
                               const tensor::ParameterLayout& whole,
                               const tensor::FlatTensors<T>& weights) {
  const SafetensorsReader reader(folder);
  check_hugging_face_tensors(reader, whole);
  for (const tensor::ParameterSpec& parameter : weights.layout().parameters()) {
    if (!whole.contains(parameter.name)) continue;
    std::vector<T> all(
        static_cast<std::size_t>(tensor::element_count(parameter.global_shape)));
    reader.read<T>(reader.at(parameter.name), all);
    const auto device = weights.flat(parameter);
    const auto host = host_mirror(device);
    copy_box(parameter, all, host.data());
    copy_tensor(device, host);
  }
}

template void load_hugging_face_weights(const std::string&,
                                        const tensor::ParameterLayout&,
                                        const tensor::FlatTensors<float>&);
template void load_hugging_face_weights(const std::string&,
                                        const tensor::ParameterLayout&,
                                        const tensor::FlatTensors<double>&);

}  // namespace pleat::io
