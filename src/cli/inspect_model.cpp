// SPDX-License-Identifier: Apache-2.0
#include "inspect_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "pleat/io/checkpoint.hpp"
#include "pleat/io/hugging_face.hpp"

namespace pleat::cli {

namespace {

using io::ElementType;
using io::TensorGroup;

/// Least, largest, mean and root mean square of the finite elements.
std::string statistics_text(ElementType type, std::span<const std::byte> bytes) {
  std::vector<double> values(bytes.size() / io::element_size(type));
  io::decode_elements<double>(type, bytes, values);
  double least = std::numeric_limits<double>::infinity();
  double largest = -least;
  double sum = 0.0;
  double squares = 0.0;
  std::int64_t finite = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    largest = std::max(largest, value);
    sum += value;
    squares += value * value;
    ++finite;
  }
  const std::int64_t broken = static_cast<std::int64_t>(values.size()) - finite;
  const std::string note = broken > 0 ? fmt::format("  NOT FINITE: {}", broken) : "";
  if (finite == 0) return note;
  const auto count = static_cast<double>(finite);
  return fmt::format("  min {:.6g}  max {:.6g}  mean {:.6g}  rms {:.6g}{}", least,
                     largest, sum / count, std::sqrt(squares / count), note);
}

std::string shape_text(const tensor::Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Elements by type: "F64: 171 tensors, 217440 elements".
class Totals {
 public:
  void add(ElementType type, const tensor::Shape& shape) {
    auto& [tensors, elements] = by_type_[type];
    ++tensors;
    elements += tensor::element_count(shape);
  }
  std::string text() const {
    std::string text;
    for (const auto& [type, counts] : by_type_) {
      text += fmt::format("{}{} elements in {} tensors of {}", text.empty() ? "" : ", ",
                          counts.second, counts.first, io::element_name(type));
    }
    return text.empty() ? "none" : text;
  }

 private:
  std::map<ElementType, std::pair<std::int64_t, std::int64_t>> by_type_;
};

/// Checks a tensor; reads it in one piece only where its numbers are wanted.
std::string check_tensor(const io::CheckpointReader& reader, TensorGroup group,
                         const std::string& name, bool statistics) {
  if (!statistics) {
    reader.verify(group, name);
    return "";
  }
  return statistics_text(reader.stored_type(group, name), reader.read_raw(group, name));
}

void print_group(const io::CheckpointReader& reader, TensorGroup group,
                 const InspectOptions& options) {
  Totals totals;
  for (const std::string& name : reader.names(group)) {
    const ElementType type = reader.stored_type(group, name);
    const std::string numbers = check_tensor(reader, group, name, options.statistics);
    totals.add(type, reader.shape(group, name));
    if (!options.tensors && !options.statistics) continue;
    fmt::print("  {:60} {:4} {:16} {:016x}{}\n", name, io::element_name(type),
               shape_text(reader.shape(group, name)), reader.stored_checksum(group, name),
               numbers);
  }
  fmt::print("{:24} {}, checksums verified\n", io::group_path(group), totals.text());
}

std::string model_text(const plan::ModelConfig& model) {
  const auto moe = std::count(model.moe_layer.begin(), model.moe_layer.end(), true);
  return fmt::format(
      "{} layers ({} MoE), hidden {}, {} heads, {} kv heads of {}, vocabulary {}; {} "
      "experts, "
      "top {}, ffn {}",
      model.layers, moe, model.hidden, model.heads, model.kv_heads, model.head_dim,
      model.vocab, model.moe.experts, model.moe.top_k, model.moe.ffn);
}

void print_objects(const io::Hdf5Group& group) {
  for (const std::string& name : group.attribute_names()) {
    fmt::print("{} @{} = {}\n", group.path(), name, group.attribute_text(name));
  }
  for (const std::string& name : group.children()) {
    if (group.is_group(name)) {
      print_objects(group.group(name));
      continue;
    }
    const io::Hdf5Dataset dataset = group.dataset(name);
    fmt::print("{} {} {}\n", dataset.path(), dataset.type_text(),
               shape_text(dataset.shape()));
  }
}

}  // namespace

void inspect_checkpoint(const std::string& path, const InspectOptions& options) {
  const io::CheckpointReader reader(path);
  const io::CheckpointInfo& info = reader.info();
  fmt::print("checkpoint               {}\n", path);
  fmt::print("format version           {}\n", info.format_version);
  fmt::print("step                     {}, next sample {}\n", info.step,
             info.next_sample);
  fmt::print("model                    {}\n", model_text(info.model));
  fmt::print("precision                {}\n", info.precision);
  fmt::print("grid                     {}\n", info.grid.empty() ? "-" : info.grid);
  fmt::print("build                    {}\n", info.build);
  fmt::print("deck                     {}\n",
             info.deck.empty() ? "none" : "kept; --deck prints it");
  for (const TensorGroup group : {TensorGroup::kParameters, TensorGroup::kFirstMoment,
                                  TensorGroup::kSecondMoment}) {
    if (reader.has(group)) print_group(reader, group, options);
  }
  if (options.deck) fmt::print("\n{}", info.deck);
}

void inspect_safetensors(const std::string& path, const InspectOptions& options) {
  const io::SafetensorsReader reader(path);
  Totals totals;
  for (const io::SafetensorsEntry& entry : reader.entries()) {
    totals.add(entry.type, entry.shape);
    if (!options.tensors && !options.statistics) continue;
    const std::string numbers =
        options.statistics ? statistics_text(entry.type, reader.read_raw(entry)) : "";
    fmt::print("  {:60} {:4} {:16}{}\n", entry.name, io::element_name(entry.type),
               shape_text(entry.shape), numbers);
  }
  if (io::is_hugging_face_folder(path)) {
    const io::HuggingFaceConfig config = io::read_hugging_face_config(path);
    fmt::print("model                    {}\n", model_text(config.model));
  }
  for (const std::string& file : reader.files())
    fmt::print("safetensors file         {}\n", file);
  fmt::print("tensors                  {}\n", totals.text());
}

void inspect_hdf5(const std::string& path) {
  const io::Hdf5File file = io::Hdf5File::open_read(path);
  fmt::print("HDF5 file                {}\n", path);
  print_objects(file.root());
}

}  // namespace pleat::cli
