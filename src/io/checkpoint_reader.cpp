// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fcntl.h>

#include "checkpoint_table.hpp"
#include "pleat/base/error.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/checksum.hpp"
#include "pleat/io/file_descriptor.hpp"
#include "pleat/io/places.hpp"

namespace pleat::io {

namespace {

constexpr std::int64_t kChunkBytes = 16 << 20;

/// Calls `take(bytes, first global index)` for consecutive parts of a data set.
template <class Take>
void for_each_part(const Hdf5Dataset& dataset, ElementType type, const Take& take) {
  const tensor::Shape& shape = dataset.shape();
  const std::int64_t count = dataset.count();
  if (count == 0) return;
  const std::int64_t rows = shape.empty() ? 1 : shape.front();
  const auto size = static_cast<std::int64_t>(element_size(type));
  const std::int64_t step =
      std::max<std::int64_t>(1, kChunkBytes / (count / rows * size));
  std::vector<std::byte> bytes;
  for (std::int64_t row = 0; row < rows; row += step) {
    tensor::Shape offset(shape.size(), 0);
    tensor::Shape extent = shape;
    const std::int64_t taken = std::min(step, rows - row);
    if (!shape.empty()) {
      offset.front() = row;
      extent.front() = taken;
    }
    bytes.resize(static_cast<std::size_t>(taken * (count / rows) * size));
    dataset.read_raw(offset, extent, bytes);
    take(std::span<const std::byte>(bytes), row * (count / rows));
  }
}

/// A file that the system keeps from us is not a damaged one: no older one may take its place.
const std::string& require_permission(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return path;
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  PLEAT_REQUIRE(file.get() >= 0, IoError, "PL0316",
                "'{}' cannot be opened for reading: {}\n"
                "HINT: check its permissions; until then no other checkpoint is used instead.",
                path, std::strerror(errno));
  return path;
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& path)
    : file_(Hdf5File::open_read(require_permission(path))),
      root_(file_.root()),
      info_(read_checkpoint_info(root_)) {
  for (const TensorGroup group : kTensorGroups) read_table(group);
  check_metadata();
  check_places();
  plan::validate(info_.model);
}

void CheckpointReader::read_table(TensorGroup group) {
  if (!root_.has(group_path(group))) return;
  for (const std::string& name : root_.group(group_path(group)).children()) {
    const std::string path = tensor_path(group, name);
    const Hdf5Dataset dataset = root_.dataset(path);
    const std::uint64_t checksum =
        parse_checksum(dataset.string_attribute("checksum"), dataset.place());
    tensors_.emplace(path, StoredTensor{.type = dataset.element_type(),
                                        .shape = dataset.shape(),
                                        .checksum = checksum,
                                        .offset = dataset.file_offset().value_or(-1)});
  }
}

void CheckpointReader::check_metadata() const {
  const std::uint64_t stored =
      parse_checksum(root_.string_attribute("metadata_checksum"), root_.place());
  PLEAT_REQUIRE(
      metadata_checksum(root_, table_text(tensors_)) == stored, InputError, "PL0307",
      "{} is damaged: the checksum of its attributes and of its table of tensors "
      "does not match\nHINT: use the checkpoint before this one, or another copy.",
      path());
}

/// No tensor may promise more than the file can hold: memory is taken by these sizes.
void CheckpointReader::check_places() const {
  const auto available = size_of_file(path());
  std::int64_t needed = 0;
  std::vector<tensor::Range> places;
  for (const auto& [path, stored] : tensors_) {
    needed += stored.bytes();
    const bool fits = needed >= 0 && needed <= available &&
                      stored.offset <= available - stored.bytes();
    PLEAT_REQUIRE(fits, InputError, "PL0307",
                  "{} is damaged: its tensors do not fit into the file, from '{}' on",
                  this->path(), path);
    if (stored.offset >= 0) places.push_back({stored.offset, stored.offset + stored.bytes()});
  }
  std::sort(places.begin(), places.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  const auto overlap =
      std::adjacent_find(places.begin(), places.end(),
                         [](const auto& a, const auto& b) { return b.begin < a.end; });
  PLEAT_REQUIRE(overlap == places.end(), InputError, "PL0307",
                "{} is damaged: tensors overlap at byte {}", path(),
                std::next(overlap)->begin);
}

const StoredTensor& CheckpointReader::entry(TensorGroup group,
                                                       const std::string& name) const {
  const auto found = tensors_.find(tensor_path(group, name));
  PLEAT_REQUIRE(found != tensors_.end(), InputError, "PL0309",
                "{}: there is no tensor '{}' in {}", path(), name, group_path(group));
  return found->second;
}

bool CheckpointReader::has(TensorGroup group) const {
  return root_.has(group_path(group));
}

std::vector<std::string> CheckpointReader::names(TensorGroup group) const {
  return names_of(tensors_, group);
}

bool CheckpointReader::contains(TensorGroup group, const std::string& name) const {
  return tensors_.contains(tensor_path(group, name));
}

ElementType CheckpointReader::stored_type(TensorGroup group,
                                          const std::string& name) const {
  return entry(group, name).type;
}

const tensor::Shape& CheckpointReader::shape(TensorGroup group,
                                             const std::string& name) const {
  return entry(group, name).shape;
}

std::uint64_t CheckpointReader::stored_checksum(TensorGroup group,
                                                const std::string& name) const {
  return entry(group, name).checksum;
}

template <class T>
void CheckpointReader::read(TensorGroup group, const tensor::ParameterSpec& parameter,
                            std::span<T> local) const {
  const StoredTensor& stored = entry(group, parameter.name);
  PLEAT_REQUIRE(stored.shape == parameter.global_shape, InputError, "PL0309",
                "{}: tensor '{}' has shape [{}], expected [{}]", path(), parameter.name,
                fmt::join(stored.shape, ", "), fmt::join(parameter.global_shape, ", "));
  if (parameter.local_shape == parameter.global_shape) {
    decode_elements<T>(stored.type, read_raw(group, parameter.name), local);
    return;
  }
  verify(group, parameter.name);
  std::vector<std::byte> bytes(local.size() * element_size(stored.type));
  root_.dataset(tensor_path(group, parameter.name))
      .read_raw(parameter.local_offset, parameter.local_shape, bytes);
  decode_elements<T>(stored.type, bytes, local);
}

std::vector<std::byte> CheckpointReader::read_raw(TensorGroup group,
                                                  const std::string& name) const {
  const StoredTensor& stored = entry(group, name);
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(tensor::element_count(stored.shape)) *
      element_size(stored.type));
  const Hdf5Dataset dataset = root_.dataset(tensor_path(group, name));
  dataset.read_raw(tensor::Shape(stored.shape.size(), 0), stored.shape, bytes);
  require_checksum(content_checksum(stored.type, bytes), stored.checksum, dataset.place());
  return bytes;
}

void CheckpointReader::verify(TensorGroup group, const std::string& name) const {
  const StoredTensor& stored = entry(group, name);
  const Hdf5Dataset dataset = root_.dataset(tensor_path(group, name));
  std::uint64_t sum = 0;
  for_each_part(
      dataset, stored.type, [&](std::span<const std::byte> bytes, std::int64_t first) {
        sum += content_checksum(stored.type, bytes, static_cast<std::uint64_t>(first));
      });
  require_checksum(sum, stored.checksum, dataset.place());
}

void CheckpointReader::verify_all() const {
  for (const TensorGroup group : kTensorGroups) {
    for (const std::string& name : names(group)) verify(group, name);
  }
}

bool is_checkpoint(const std::string& path) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  if (!is_plain_file(path)) return false;
  if (path.ends_with(".h5")) return true;
  std::array<char, kSignature.size()> start{};
  std::ifstream(path, std::ios::binary).read(start.data(), start.size());
  return std::string_view(start.data(), start.size()) == kSignature;
}

void check_checkpoint_tensors(const CheckpointReader& reader, TensorGroup group,
                              const tensor::ParameterLayout& layout) {
  require_same_tensors(reader.path(), reader.tensors(), group, layout);
}

template void CheckpointReader::read(TensorGroup, const tensor::ParameterSpec&,
                                     std::span<float>) const;
template void CheckpointReader::read(TensorGroup, const tensor::ParameterSpec&,
                                     std::span<double>) const;

}  // namespace pleat::io
