// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pleat/base/error.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/io/json.hpp"
#include "pleat/io/places.hpp"
#include "pleat/io/safetensors.hpp"

namespace pleat::io {

namespace {

using nlohmann::json;

constexpr std::int64_t kLargestHeader = 100'000'000;  // bytes, as in the reference reader
constexpr std::int64_t kLargestCount = std::int64_t{1} << 56;

void read_fully(int file, std::span<std::byte> bytes, std::int64_t offset,
                const std::string& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(file, bytes.data() + done, bytes.size() - done,
                              static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    PLEAT_REQUIRE(got > 0, InputError, "PL0401", "cannot read '{}' at byte {}: {}", path,
                  offset + static_cast<std::int64_t>(done),
                  got == 0 ? "the file ends there" : std::strerror(errno));
    done += static_cast<std::size_t>(got);
  }
}

std::int64_t unsigned_number(const json& value, const std::string& what) {
  const bool sound =
      value.is_number_unsigned() &&
      value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kLargestCount);
  PLEAT_REQUIRE(sound, InputError, "PL0402", "{} is not a sensible non-negative integer",
                what);
  return value.get<std::int64_t>();
}

const json& member(const json& object, const char* key, const std::string& what) {
  PLEAT_REQUIRE(object.is_object() && object.contains(key), InputError, "PL0402",
                "{} has no '{}'", what, key);
  return object[key];
}

tensor::Shape parse_shape(const json& value, const std::string& what) {
  PLEAT_REQUIRE(value.is_array(), InputError, "PL0402", "{}: 'shape' is not an array",
                what);
  tensor::Shape shape;
  std::int64_t room = kLargestCount;
  for (const json& extent : value) {
    shape.push_back(unsigned_number(extent, what + ": an extent of 'shape'"));
    PLEAT_REQUIRE(shape.back() <= room, InputError, "PL0402", "{}: 'shape' is too large",
                  what);
    if (shape.back() > 0) room /= shape.back();
  }
  return shape;
}

SafetensorsEntry parse_entry(const std::string& name, const json& value,
                             const std::string& path) {
  const std::string what = fmt::format("'{}': tensor '{}'", path, name);
  SafetensorsEntry entry;
  entry.name = name;
  const json& type = member(value, "dtype", what);
  PLEAT_REQUIRE(type.is_string(), InputError, "PL0402", "{}: 'dtype' is not a text",
                what);
  const auto known = parse_element_type(type.get<std::string>());
  PLEAT_REQUIRE(known.has_value(), InputError, "PL0403",
                "{} has dtype '{}', expected F64, F32, F16 or BF16\nHINT: quantized and "
                "integer tensors cannot be trained; use the model's unquantized files.",
                what, type.get<std::string>());
  entry.type = *known;
  entry.shape = parse_shape(member(value, "shape", what), what);
  const json& offsets = member(value, "data_offsets", what);
  PLEAT_REQUIRE(offsets.is_array() && offsets.size() == 2, InputError, "PL0402",
                "{}: 'data_offsets' is not a pair", what);
  entry.begin = unsigned_number(offsets[0], what + ": 'data_offsets'");
  entry.end = unsigned_number(offsets[1], what + ": 'data_offsets'");
  const std::int64_t bytes = tensor::element_count(entry.shape) *
                             static_cast<std::int64_t>(element_size(entry.type));
  PLEAT_REQUIRE(
      entry.begin <= entry.end && entry.end - entry.begin == bytes, InputError, "PL0402",
      "{} needs {} bytes by its shape and dtype, but 'data_offsets' is [{}, {}]", what,
      bytes, entry.begin, entry.end);
  return entry;
}

/// The bytes of the tensors must fill the rest of the file without gap or overlap.
void check_coverage(std::vector<SafetensorsEntry>& entries, std::int64_t data_bytes,
                    const std::string& path) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::int64_t reached = 0;
  for (const SafetensorsEntry& entry : entries) {
    PLEAT_REQUIRE(
        entry.end <= data_bytes, InputError, "PL0402",
        "'{}' is truncated: tensor '{}' ends at byte {} of its data, the file has {}",
        path, entry.name, entry.end, data_bytes);
    PLEAT_REQUIRE(entry.begin == reached, InputError, "PL0402",
                  "'{}': tensor '{}' begins at byte {} of the data, expected {}", path,
                  entry.name, entry.begin, reached);
    reached = entry.end;
  }
  PLEAT_REQUIRE(reached == data_bytes, InputError, "PL0402",
                "'{}' has {} bytes after its last tensor", path, data_bytes - reached);
}

/// The JSON header, checked for length; `offset` becomes the first byte of the data.
std::string read_header(int file, std::int64_t file_bytes, const std::string& path,
                        std::int64_t& offset) {
  PLEAT_REQUIRE(file_bytes >= 8, InputError, "PL0402",
                "'{}' has {} bytes, too few for a safetensors file", path, file_bytes);
  std::array<std::byte, 8> prefix;
  read_fully(file, prefix, 0, path);
  std::uint64_t length = 0;
  std::memcpy(&length, prefix.data(), prefix.size());
  PLEAT_REQUIRE(
      length <= static_cast<std::uint64_t>(kLargestHeader) &&
          static_cast<std::int64_t>(length) <= file_bytes - 8,
      InputError, "PL0402",
      "'{}' is not a safetensors file, or truncated: it announces a header of {} "
      "bytes and has {}",
      path, length, file_bytes);
  std::string text(length, '\0');
  read_fully(file, std::as_writable_bytes(std::span<char>(text)), 8, path);
  offset = 8 + static_cast<std::int64_t>(length);
  return text;
}

std::map<std::string, std::string> parse_metadata(const json& value,
                                                  const std::string& path) {
  PLEAT_REQUIRE(value.is_object(), InputError, "PL0402",
                "'{}': '__metadata__' is no object", path);
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    PLEAT_REQUIRE(text.is_string(), InputError, "PL0402",
                  "'{}': '{}' in '__metadata__' is not a text", path, key);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

std::map<std::string, std::string> parse_weight_map(const std::string& path) {
  const json tree = parse_json(read_small_file(path, kLargestHeader), "'" + path + "'");
  const json& map = member(tree, "weight_map", "'" + path + "'");
  PLEAT_REQUIRE(map.is_object() && !map.empty(), InputError, "PL0404",
                "'{}': 'weight_map' is empty or no object", path);
  std::map<std::string, std::string> file_of;
  for (const auto& [name, file] : map.items()) {
    const bool plain = file.is_string() && !file.get<std::string>().empty() &&
                       file.get<std::string>().find('/') == std::string::npos &&
                       file.get<std::string>().front() != '.';
    PLEAT_REQUIRE(plain, InputError, "PL0404",
                  "'{}': the file of tensor '{}' is not a plain file name", path, name);
    file_of[name] = file.get<std::string>();
  }
  return file_of;
}

/// All absent shards at once: downloads that broke off lack several.
void require_shards(const std::string& folder, const std::string& index,
                    const std::map<std::string, std::string>& file_of) {
  std::map<std::string, std::vector<std::string>> missing;
  for (const auto& [name, file] : file_of) {
    if (!is_there(folder + "/" + file)) missing[file].push_back(name);
  }
  if (missing.empty()) return;
  constexpr std::size_t kShown = 5;
  std::vector<std::string> lines;
  for (const auto& [file, names] : missing) {
    if (lines.size() == kShown) break;
    const bool one = names.size() == 1;
    lines.push_back(fmt::format("'{}' with {} tensor{}: '{}'{}", file, names.size(),
                                one ? "" : "s", names.front(), one ? "" : ", ..."));
  }
  PLEAT_FAIL(InputError, "PL0404",
             "'{}' lists files that are missing beside it; {} of {}:\n  {}\n"
             "HINT: download them into the same folder.",
             index, lines.size(), missing.size(), fmt::join(lines, "\n  "));
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) {
  if (!is_folder(path)) {
    open_file(path);
    return;
  }
  const std::string single = path + "/model.safetensors";
  const std::string index = path + "/model.safetensors.index.json";
  if (is_there(single)) {
    open_file(single);
    return;
  }
  PLEAT_REQUIRE(
      is_there(index), InputError, "PL0401",
      "'{}' has neither model.safetensors nor model.safetensors.index.json\n"
      "HINT: other formats (.bin, .pt) must be converted with transformers first.",
      path);
  open_shards(path, index);
}

void SafetensorsReader::open_file(const std::string& path) {
  // Not blocking, so that a pipe is refused and not waited for.
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  PLEAT_REQUIRE(file.get() >= 0 && fstat(file.get(), &status) == 0, InputError, "PL0401",
                "cannot open '{}': {}", path, std::strerror(errno));
  PLEAT_REQUIRE(S_ISREG(status.st_mode), InputError, "PL0401", "'{}' is not a file",
                path);
  std::int64_t data = 0;
  const std::string header = read_header(file.get(), status.st_size, path, data);
  const json table = parse_json(header, "the header of '" + path + "'", 4);
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, value] : table.items()) {
    if (name == "__metadata__") {
      if (files_.empty()) metadata_ = parse_metadata(value, path);
    } else {
      entries.push_back(parse_entry(name, value, path));
    }
  }
  check_coverage(entries, status.st_size - data, path);
  for (SafetensorsEntry& entry : entries) {
    entry.begin += data;
    entry.end += data;
    entry.file = files_.size();
    const bool added = index_.emplace(entry.name, entries_.size()).second;
    PLEAT_REQUIRE(added, InputError, "PL0404",
                  "'{}': tensor '{}' is in another shard too", path, entry.name);
    entries_.push_back(std::move(entry));
  }
  paths_.push_back(path);
  files_.push_back(std::move(file));
}

void SafetensorsReader::open_shards(const std::string& folder, const std::string& index) {
  const std::map<std::string, std::string> expected = parse_weight_map(index);
  require_shards(folder, index, expected);
  std::map<std::string, std::size_t> shards;
  for (const auto& [name, file] : expected) shards.emplace(file, 0);
  for (auto& [file, number] : shards) {
    number = files_.size();
    open_file(folder + "/" + file);
  }
  for (const auto& [name, file] : expected) {
    PLEAT_REQUIRE(contains(name) && at(name).file == shards.at(file), InputError,
                  "PL0404", "'{}' says that tensor '{}' is in '{}', but it is not", index,
                  name, file);
  }
  for (const SafetensorsEntry& entry : entries_) {
    PLEAT_REQUIRE(expected.contains(entry.name), InputError, "PL0404",
                  "'{}' does not list tensor '{}' of '{}'", index, entry.name,
                  file_of(entry));
  }
}

const SafetensorsEntry& SafetensorsReader::at(const std::string& name) const {
  const auto found = index_.find(name);
  PLEAT_REQUIRE(found != index_.end(), InputError, "PL0408", "'{}' has no tensor '{}'",
                paths_.front(), name);
  return entries_[found->second];
}

const std::string& SafetensorsReader::file_of(const SafetensorsEntry& entry) const {
  return paths_[entry.file];
}

std::vector<std::byte> SafetensorsReader::read_raw(const SafetensorsEntry& entry) const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.end - entry.begin));
  read_fully(files_[entry.file].get(), bytes, entry.begin, paths_[entry.file]);
  return bytes;
}

template <class T>
void SafetensorsReader::read(const SafetensorsEntry& entry, std::span<T> values) const {
  decode_elements<T>(entry.type, read_raw(entry), values);
}

template void SafetensorsReader::read(const SafetensorsEntry&, std::span<float>) const;
template void SafetensorsReader::read(const SafetensorsEntry&, std::span<double>) const;

}  // namespace pleat::io
