// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include <unistd.h>

#include "pending_file.hpp"
#include "pleat/base/error.hpp"
#include "pleat/io/megatron.hpp"

namespace pleat::io {

namespace {

constexpr std::int64_t kMaxSequence = std::numeric_limits<std::int32_t>::max();

template <class T>
void encode_as(std::span<const std::int64_t> tokens, std::vector<std::byte>& bytes) {
  bytes.resize(tokens.size() * sizeof(T));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto value = static_cast<T>(tokens[i]);
    PLEAT_REQUIRE(static_cast<std::int64_t>(value) == tokens[i], InputError, "PL0504",
                  "token {} does not fit the type of the Megatron file", tokens[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
}

void encode(MegatronType type, std::span<const std::int64_t> tokens,
            std::vector<std::byte>& bytes) {
  switch (type) {
    case MegatronType::kUint8:
      return encode_as<std::uint8_t>(tokens, bytes);
    case MegatronType::kInt8:
      return encode_as<std::int8_t>(tokens, bytes);
    case MegatronType::kInt16:
      return encode_as<std::int16_t>(tokens, bytes);
    case MegatronType::kInt32:
      return encode_as<std::int32_t>(tokens, bytes);
    case MegatronType::kInt64:
      return encode_as<std::int64_t>(tokens, bytes);
    case MegatronType::kFloat64:
      return encode_as<double>(tokens, bytes);
    case MegatronType::kFloat32:
      return encode_as<float>(tokens, bytes);
    case MegatronType::kUint16:
      return encode_as<std::uint16_t>(tokens, bytes);
  }
}

}  // namespace

MegatronWriter::MegatronWriter(const std::string& path, MegatronType type)
    : pending_bin_(std::make_unique<PendingFile>(MegatronPaths(path).bin)),
      pending_idx_(std::make_unique<PendingFile>(MegatronPaths(path).idx)),
      type_(type),
      bin_(std::fopen(pending_bin_->temporary().c_str(), "wb")) {
  PLEAT_REQUIRE(bin_ != nullptr, InputError, "PL0515", "cannot write '{}': {}",
                pending_bin_->path(), std::strerror(errno));
}

MegatronWriter::~MegatronWriter() = default;

void MegatronWriter::append(std::span<const std::int64_t> tokens) {
  std::vector<std::byte> bytes;
  while (!tokens.empty()) {
    if (open_tokens_ == kMaxSequence) end_sequence();
    const auto room = static_cast<std::size_t>(kMaxSequence - open_tokens_);
    const auto part = tokens.first(std::min(room, tokens.size()));
    encode(type_, part, bytes);
    write(bin_, bytes.data(), bytes.size(), pending_bin_->path());
    open_tokens_ += static_cast<std::int64_t>(part.size());
    tokens = tokens.subspan(part.size());
  }
}

void MegatronWriter::end_sequence() {
  sizes_.push_back(static_cast<std::int32_t>(open_tokens_));
  open_tokens_ = 0;
}

void MegatronWriter::end_document() {
  if (open_tokens_ > 0) end_sequence();
  documents_.push_back(static_cast<std::int64_t>(sizes_.size()));
}

void MegatronWriter::finish() {
  if (open_tokens_ > 0) end_document();
  close(bin_, pending_bin_->path());
  write_index();
  pending_bin_->commit();
  pending_idx_->commit();  // last: without it the pair does not open
}

void MegatronWriter::write_index() const {
  const std::string& path = pending_idx_->path();
  File idx(std::fopen(pending_idx_->temporary().c_str(), "wb"));
  PLEAT_REQUIRE(idx != nullptr, IoError, "PL0516", "cannot write '{}': {}", path,
                std::strerror(errno));
  const auto put = [&](const void* data, std::size_t bytes) {
    write(idx, data, bytes, path);
  };
  const std::uint64_t version = 1;
  const std::uint64_t sequences = sizes_.size();
  const std::uint64_t documents = documents_.size();
  put("MMIDIDX\0\0", 9);
  put(&version, sizeof(version));
  put(&type_, sizeof(type_));
  put(&sequences, sizeof(sequences));
  put(&documents, sizeof(documents));
  put(sizes_.data(), sizes_.size() * sizeof(std::int32_t));
  std::int64_t pointer = 0;
  for (const std::int32_t size : sizes_) {
    put(&pointer, sizeof(pointer));
    pointer += size * megatron_type_size(type_);
  }
  put(documents_.data(), documents_.size() * sizeof(std::int64_t));
  close(idx, path);
}

void MegatronWriter::write(const File& file, const void* data, std::size_t bytes,
                           const std::string& path) {
  PLEAT_REQUIRE(std::fwrite(data, 1, bytes, file.get()) == bytes, IoError, "PL0516",
                "cannot write '{}': {}", path, std::strerror(errno));
}

void MegatronWriter::close(File& file, const std::string& path) {
  const bool flushed = std::fflush(file.get()) == 0 && ::fsync(::fileno(file.get())) == 0;
  const bool closed = std::fclose(file.release()) == 0;
  PLEAT_REQUIRE(flushed && closed, IoError, "PL0516", "cannot write '{}': {}", path,
                std::strerror(errno));
}

}  // namespace pleat::io
