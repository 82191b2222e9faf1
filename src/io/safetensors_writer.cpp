// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "pleat/base/error.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/io/safetensors.hpp"

namespace pleat::io {

namespace {

void write_fully(int file, std::span<const std::byte> bytes, std::int64_t offset,
                 const std::string& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = pwrite(file, bytes.data() + done, bytes.size() - done,
                               static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (put < 0 && errno == EINTR) continue;
    PLEAT_REQUIRE(put >= 0, IoError, "PL0405",
                  "cannot write '{}': {}\nHINT: check free space, quota and permissions.",
                  path, std::strerror(errno));
    done += static_cast<std::size_t>(put);
  }
}

std::int64_t byte_count(const SafetensorsEntry& entry) {
  return tensor::element_count(entry.shape) *
         static_cast<std::int64_t>(element_size(entry.type));
}

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

/// The table of one file, blank-padded so that the data begin on a multiple of 8 bytes.
std::string header_text(const std::vector<SafetensorsEntry>& tensors, std::size_t file) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  for (const SafetensorsEntry& entry : tensors) {
    if (entry.file != file) continue;
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        quoted(entry.name), element_name(entry.type),
                        fmt::join(entry.shape, ","), entry.begin, entry.end);
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string folder,
                                     std::vector<SafetensorsEntry> tensors,
                                     std::int64_t shard_bytes)
    : folder_(std::move(folder)), tensors_(std::move(tensors)) {
  // Wide types first, so that every tensor is aligned to its own element size.
  std::stable_sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
    return element_size(a.type) > element_size(b.type);
  });
  assign_files(shard_bytes);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const bool added = index_.emplace(tensors_[i].name, i).second;
    PLEAT_ASSERT(added, "tensor '{}' is listed twice", tensors_[i].name);
  }
  write_headers();
}

void SafetensorsWriter::assign_files(std::int64_t shard_bytes) {
  std::size_t file = 0;
  std::int64_t used = 0;
  for (SafetensorsEntry& entry : tensors_) {
    if (used > 0 && used + byte_count(entry) > shard_bytes) {
      ++file;
      used = 0;
    }
    entry.file = file;
    entry.begin = used;
    used += byte_count(entry);
    entry.end = used;
  }
  const std::size_t files = file + 1;
  for (std::size_t i = 0; i < files; ++i) {
    paths_.push_back(files == 1 ? folder_ + "/model.safetensors"
                                : fmt::format("{}/model-{:05}-of-{:05}.safetensors",
                                              folder_, i + 1, files));
  }
}

void SafetensorsWriter::write_headers() {
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    const int descriptor =
        open(paths_[i].c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    PLEAT_REQUIRE(descriptor >= 0, IoError, "PL0405", "cannot create '{}': {}", paths_[i],
                  std::strerror(errno));
    files_.emplace_back(descriptor);
    const std::string header = header_text(tensors_, i);
    const std::uint64_t length = header.size();
    const auto prefix = std::as_bytes(std::span(&length, 1));
    write_fully(descriptor, prefix, 0, paths_[i]);
    write_fully(descriptor, std::as_bytes(std::span(header)), 8, paths_[i]);
    for (SafetensorsEntry& entry : tensors_) {
      if (entry.file != i) continue;
      entry.begin += 8 + static_cast<std::int64_t>(length);
      entry.end += 8 + static_cast<std::int64_t>(length);
    }
  }
}

void SafetensorsWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  const auto found = index_.find(name);
  PLEAT_ASSERT(found != index_.end(), "tensor '{}' was not listed or is written twice",
               name);
  const SafetensorsEntry& entry = tensors_[found->second];
  PLEAT_ASSERT(static_cast<std::int64_t>(bytes.size()) == entry.end - entry.begin,
               "tensor '{}' has {} bytes", name, bytes.size());
  write_fully(files_[entry.file].get(), bytes, entry.begin, paths_[entry.file]);
  index_.erase(found);
}

void SafetensorsWriter::write_index() const {
  std::int64_t total = 0;
  std::string map;
  for (const SafetensorsEntry& entry : tensors_) {
    total += entry.end - entry.begin;
    const std::string file = paths_[entry.file].substr(folder_.size() + 1);
    map += fmt::format("{}\n    {}: {}", map.empty() ? "" : ",", quoted(entry.name),
                       quoted(file));
  }
  const std::string text = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{{}\n  "
      "}}\n}}\n",
      total, map);
  write_durably(folder_ + "/model.safetensors.index.json", text);
}

void SafetensorsWriter::finish() {
  PLEAT_ASSERT(index_.empty(), "tensor '{}' was never written", index_.begin()->first);
  for (std::size_t i = 0; i < files_.size(); ++i) {
    PLEAT_REQUIRE(fsync(files_[i].get()) == 0, IoError, "PL0405",
                  "cannot bring '{}' to the disk: {}", paths_[i], std::strerror(errno));
  }
  files_.clear();
  if (paths_.size() > 1) write_index();
  sync_path(folder_);
}

}  // namespace pleat::io
