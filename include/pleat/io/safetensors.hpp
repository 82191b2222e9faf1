// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The safetensors format: a JSON table of tensors, then their bytes.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "pleat/io/element_type.hpp"
#include "pleat/io/file_descriptor.hpp"
#include "pleat/tensor/parameter_layout.hpp"

namespace pleat::io {

/// \brief One row of the table.
struct SafetensorsEntry {
  std::string name;
  ElementType type = ElementType::kF32;
  tensor::Shape shape;
  std::int64_t begin = 0;  ///< first byte, counted from the start of the file
  std::int64_t end = 0;
  std::size_t file = 0;  ///< which of the reader's files
};

/// \brief Reads one file, or a folder with `model.safetensors` or the shards that its
/// `model.safetensors.index.json` lists.
///
/// All tables are checked when it is opened: types, sizes against shapes, offsets within
/// the file, without gap or overlap, no name twice, index and shards in agreement.
/// \throws InputError PL0401 to PL0404
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);

  /// \brief In the order of the bytes.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  bool contains(const std::string& name) const { return index_.contains(name); }
  const SafetensorsEntry& at(const std::string& name) const;
  const std::string& file_of(const SafetensorsEntry& entry) const;
  const std::vector<std::string>& files() const { return paths_; }
  /// \brief The `__metadata__` of the first file.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// \brief Elements as they are stored.
  std::vector<std::byte> read_raw(const SafetensorsEntry& entry) const;
  /// \tparam T  float or double
  template <class T>
  void read(const SafetensorsEntry& entry, std::span<T> values) const;

 private:
  void open_file(const std::string& path);
  void open_shards(const std::string& folder, const std::string& index);

  std::vector<std::string> paths_;
  std::vector<FileDescriptor> files_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::size_t> index_;
  std::map<std::string, std::string> metadata_;
};

/// \brief Writes `model.safetensors`, or shards with their index where one file would
/// exceed the limit, into a folder. The same tensors give the same bytes.
class SafetensorsWriter {
 public:
  /// \param tensors  name, type and shape; the rest is assigned
  /// \param shard_bytes  limit of one file's tensors; a larger tensor gets its own file
  /// \throws IoError PL0405
  SafetensorsWriter(std::string folder, std::vector<SafetensorsEntry> tensors,
                    std::int64_t shard_bytes);
  /// \brief All elements of one tensor, in any order of tensors. \throws IoError PL0405
  void write(const std::string& name, std::span<const std::byte> bytes);
  /// \brief Brings everything to the disk. \throws IoError PL0405
  void finish();

 private:
  void assign_files(std::int64_t shard_bytes);
  void write_headers();
  void write_index() const;

  std::string folder_;
  std::vector<SafetensorsEntry> tensors_;
  std::map<std::string, std::size_t> index_;
  std::vector<std::string> paths_;
  std::vector<FileDescriptor> files_;
};

}  // namespace pleat::io
