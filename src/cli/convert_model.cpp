// SPDX-License-Identifier: Apache-2.0
#include "convert_model.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "output_place.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/log.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/io/hugging_face.hpp"
#include "pleat/io/places.hpp"
#include "pleat/model/parameters.hpp"

namespace pleat::cli {

namespace {

using io::ElementType;
using io::TensorGroup;
using tensor::ParameterSpec;

/// The same numbers in another type, rounded once.
std::vector<std::byte> change_type(const std::vector<std::byte>& bytes, ElementType from,
                                   ElementType to, const std::string& name) {
  if (from == to) return bytes;
  std::vector<double> values(bytes.size() / io::element_size(from));
  io::decode_elements<double>(from, bytes, values);
  std::vector<std::byte> changed(values.size() * io::element_size(to));
  const std::int64_t lost = io::encode_elements<double>(to, values, changed);
  PLEAT_REQUIRE(
      lost == 0, InputError, "PL0923",
      "{} values of tensor '{}' are too large for {}\nHINT: choose --dtype bf16, f32 "
      "or f64.",
      lost, name, io::element_name(to));
  return changed;
}

const char* precision_name(ElementType type) {
  switch (type) {
    case ElementType::kF64:
      return "fp64";
    case ElementType::kF32:
      return "fp32";
    case ElementType::kF16:
      return "fp16";
    default:
      return "bf16";
  }
}

io::CheckpointInfo info_of(const io::HuggingFaceConfig& config, ElementType type) {
  io::CheckpointInfo info;
  info.model = config.model;
  info.precision = precision_name(type);
  info.build = "pleat " PLEAT_VERSION ", converted from Hugging Face";
  info.hugging_face_config = config.text;
  return info;
}

std::string summary(const std::string& to, std::size_t tensors, std::int64_t bytes) {
  return fmt::format("wrote {}: {} tensors, {:.1f} MB", to, tensors,
                     static_cast<double>(bytes) * 1e-6);
}

/// What else a model folder has: tokenizer, generation settings, licence, pictures.
std::vector<std::string> other_files(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string& name : io::names_in_folder(folder)) {
    const bool other = !is_model_file(name) && !name.starts_with('.');
    if (other && io::is_plain_file(folder + "/" + name))
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// A checkpoint holds weights and config.json; users expect the rest to come back too.
std::string left_behind(const std::string& folder) {
  const std::vector<std::string> names = other_files(folder);
  if (names.empty()) return "";
  return fmt::format(
      "\nnot part of a checkpoint: {}\n  copy what you need beside the "
      "model when you convert back to Hugging Face",
      fmt::join(names, ", "));
}

/// All tensors of the model, of the type that was asked for or that they come with.
std::vector<io::TensorDeclaration> declare_tensors(const io::SafetensorsReader& reader,
                                                   const tensor::ParameterLayout& layout,
                                                   const ModelConversion& conversion) {
  std::vector<io::TensorDeclaration> tensors;
  for (const ParameterSpec& parameter : layout.parameters()) {
    tensors.push_back({.group = TensorGroup::kParameters,
                       .name = parameter.name,
                       .shape = parameter.global_shape,
                       .type = conversion.type.value_or(reader.at(parameter.name).type)});
  }
  return tensors;
}

/// The types that the tensors of a folder will have, in the layout's order.
std::vector<io::SafetensorsEntry> plan_entries(const io::CheckpointReader& reader,
                                               const tensor::ParameterLayout& layout,
                                               const ModelConversion& conversion) {
  std::vector<io::SafetensorsEntry> entries;
  for (const ParameterSpec& parameter : layout.parameters()) {
    const ElementType stored =
        reader.stored_type(TensorGroup::kParameters, parameter.name);
    entries.push_back({.name = parameter.name,
                       .type = conversion.type.value_or(stored),
                       .shape = parameter.global_shape});
  }
  return entries;
}

/// What config.json calls the type of the model: that of the largest number of elements.
ElementType main_type(const std::vector<io::SafetensorsEntry>& entries) {
  std::array<std::int64_t, 4> elements{};
  for (const io::SafetensorsEntry& entry : entries) {
    elements[static_cast<std::size_t>(entry.type)] += tensor::element_count(entry.shape);
  }
  const auto largest = std::max_element(elements.begin(), elements.end());
  return static_cast<ElementType>(largest - elements.begin());
}

std::int64_t write_tensors(const io::CheckpointReader& reader,
                           const std::vector<io::SafetensorsEntry>& entries,
                           const std::string& folder, std::int64_t shard_bytes) {
  io::SafetensorsWriter writer(folder, entries, shard_bytes);
  std::int64_t total = 0;
  for (const io::SafetensorsEntry& entry : entries) {
    const ElementType stored = reader.stored_type(TensorGroup::kParameters, entry.name);
    const auto bytes = change_type(reader.read_raw(TensorGroup::kParameters, entry.name),
                                   stored, entry.type, entry.name);
    writer.write(entry.name, bytes);
    total += static_cast<std::int64_t>(bytes.size());
  }
  writer.finish();
  return total;
}

}  // namespace

std::string convert_to_checkpoint(const ModelConversion& conversion) {
  require_free_file(conversion.to, conversion.force);
  const io::HuggingFaceConfig config = io::read_hugging_face_config(conversion.from);
  const auto layout = model::parameter_layout(config.model);
  const io::SafetensorsReader reader(conversion.from);
  io::check_hugging_face_tensors(reader, *layout);
  const io::CheckpointInfo info = info_of(config, conversion.type.value_or(config.type));
  io::CheckpointWriter writer(conversion.to, info,
                              declare_tensors(reader, *layout, conversion), MPI_COMM_SELF);
  std::int64_t total = 0;
  for (const ParameterSpec& parameter : layout->parameters()) {
    const io::SafetensorsEntry& entry = reader.at(parameter.name);
    const auto bytes = change_type(reader.read_raw(entry), entry.type,
                                   conversion.type.value_or(entry.type), parameter.name);
    writer.add(TensorGroup::kParameters, parameter, {0, parameter.local_count()}, bytes);
    writer.write();
    total += static_cast<std::int64_t>(bytes.size());
  }
  writer.commit();
  return summary(conversion.to, layout->parameters().size(), total) +
         left_behind(conversion.from);
}

std::string convert_to_hugging_face(const ModelConversion& conversion) {
  OutputFolder output(conversion.to, conversion.force);
  const io::CheckpointReader reader(conversion.from);
  const auto layout = model::parameter_layout(reader.info().model);
  io::check_checkpoint_tensors(reader, TensorGroup::kParameters, *layout);
  const auto entries = plan_entries(reader, *layout, conversion);
  const std::string config = io::hugging_face_config_text(
      reader.info().model, main_type(entries), reader.info().hugging_face_config);
  const std::int64_t total =
      write_tensors(reader, entries, output.work_folder(), conversion.shard_bytes);
  io::write_durably(output.work_folder() + "/config.json", config);
  output.commit();
  const bool alone = other_files(conversion.to).empty();
  return summary(conversion.to, entries.size(), total) +
         (alone ? "\nno tokenizer and no generation_config.json: copy those of the "
                  "original model or of the training data beside it"
                : "");
}

std::string resolve_checkpoint(const std::string& path) {
  if (io::is_checkpoint(path)) return path;
  const std::string folder = io::find_checkpoint_folder(path);
  if (folder.empty()) return "";
  Log log(true, stderr);
  return io::find_resume_checkpoint(folder, log).value_or("");
}

}  // namespace pleat::cli
