// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_table.hpp"

#include <algorithm>

#include "byte_archive.hpp"
#include "pleat/base/error.hpp"

namespace pleat::io {

namespace {

/// What keeps the tensors of a group from being those of the layout.
std::vector<std::string> differences(const StoredTensors& tensors, TensorGroup group,
                                     const tensor::ParameterLayout& layout) {
  std::vector<std::string> found;
  for (const tensor::ParameterSpec& parameter : layout.parameters()) {
    const auto stored = tensors.find(tensor_path(group, parameter.name));
    if (stored == tensors.end()) {
      found.push_back(fmt::format("'{}' is missing", parameter.name));
    } else if (stored->second.shape != parameter.global_shape) {
      found.push_back(fmt::format("'{}' has shape [{}], the model's is [{}]",
                                  parameter.name, fmt::join(stored->second.shape, ", "),
                                  fmt::join(parameter.global_shape, ", ")));
    }
  }
  for (const std::string& name : names_of(tensors, group)) {
    if (!layout.contains(name)) {
      found.push_back(fmt::format("'{}' is not in the model", name));
    }
  }
  return found;
}

}  // namespace

const char* group_path(TensorGroup group) {
  switch (group) {
    case TensorGroup::kParameters:
      return "/parameters";
    case TensorGroup::kFirstMoment:
      return "/optimizer/first_moment";
    default:
      return "/optimizer/second_moment";
  }
}

std::string tensor_path(TensorGroup group, const std::string& name) {
  return fmt::format("{}/{}", group_path(group), name);
}

std::int64_t StoredTensor::bytes() const {
  return tensor::element_count(shape) * static_cast<std::int64_t>(element_size(type));
}

std::string table_text(const StoredTensors& tensors) {
  std::string text;
  for (const auto& [path, stored] : tensors) {
    text += checkpoint_table_line(path, stored.type, stored.shape, stored.checksum);
  }
  return text;
}

std::string pack_tensors(const StoredTensors& tensors) {
  ByteWriter bytes;
  bytes.put(static_cast<std::uint64_t>(tensors.size()));
  for (const auto& [path, stored] : tensors) {
    bytes.put(path);
    bytes.put(static_cast<int>(stored.type));
    bytes.put(stored.shape);
    bytes.put(stored.checksum);
    bytes.put(stored.offset);
  }
  return bytes.take();
}

StoredTensors unpack_tensors(const std::string& packed) {
  ByteReader bytes(packed);
  StoredTensors tensors;
  for (auto left = bytes.get<std::uint64_t>(); left > 0; --left) {
    const auto path = bytes.get<std::string>();
    StoredTensor& stored = tensors[path];
    stored.type = static_cast<ElementType>(bytes.get<int>());
    bytes.get(stored.shape);
    bytes.get(stored.checksum);
    bytes.get(stored.offset);
  }
  return tensors;
}

std::vector<std::string> names_of(const StoredTensors& tensors, TensorGroup group) {
  const std::string prefix = std::string(group_path(group)) + "/";
  std::vector<std::string> names;
  for (auto entry = tensors.lower_bound(prefix);
       entry != tensors.end() && entry->first.starts_with(prefix); ++entry) {
    names.push_back(entry->first.substr(prefix.size()));
  }
  return names;
}

void require_same_tensors(const std::string& file, const StoredTensors& tensors,
                          TensorGroup group, const tensor::ParameterLayout& layout) {
  constexpr std::size_t kShown = 5;
  std::vector<std::string> found = differences(tensors, group, layout);
  if (found.empty()) return;
  const std::size_t all = found.size();
  found.resize(std::min(all, kShown));
  PLEAT_FAIL(InputError, "PL0309",
             "'{}' is a checkpoint of another model; {} of {} differences in {}:\n  {}\n"
             "HINT: compare the deck's [model] and [moe] with `pleat inspect`.",
             file, found.size(), all, group_path(group), fmt::join(found, "\n  "));
}

void require_checksum(std::uint64_t found, std::uint64_t stored, const std::string& place) {
  PLEAT_REQUIRE(
      found == stored, InputError, "PL0308",
      "{} is damaged: its checksum is {}, stored is {}\nHINT: use the checkpoint "
      "before this one, or another copy.",
      place, checksum_text(found), checksum_text(stored));
}

void require_moments(const std::string& file, bool present) {
  PLEAT_REQUIRE(present, InputError, "PL0311",
                "'{}' holds weights only, no optimizer state to continue from\nHINT: start "
                "a new run from these weights with model.init.",
                file);
}

}  // namespace pleat::io
