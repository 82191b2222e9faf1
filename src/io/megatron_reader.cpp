// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "pleat/base/error.hpp"
#include "pleat/io/megatron.hpp"

namespace pleat::io {

namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::int64_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;

/// Nothing in the index is aligned, hence the copy.
template <class T>
T load(std::span<const std::byte> bytes, std::int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <class T>
void decode_as(const MappedFile& file, std::int64_t byte, std::span<std::int64_t> tokens) {
  const std::byte* const bytes = file.bytes().data() + byte;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    if constexpr (std::is_floating_point_v<T>) {
      PLEAT_REQUIRE(std::abs(value) <= T(1LL << 53) && value == std::trunc(value),
                    InputError, "PL0504",
                    "'{}': the value {} at byte {} is no token\n"
                    "HINT: tokens of a floating-point file must be whole numbers.",
                    file.path(), value,
                    byte + static_cast<std::int64_t>(i * sizeof(T)));
    }
    tokens[i] = static_cast<std::int64_t>(value);
  }
}

}  // namespace

std::string_view megatron_type_name(MegatronType type) {
  constexpr std::array<std::string_view, 9> kNames = {
      "", "uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16"};
  return kNames[static_cast<std::size_t>(type)];
}

std::int64_t megatron_type_size(MegatronType type) {
  constexpr std::array<std::int64_t, 9> kSizes = {0, 1, 1, 2, 4, 8, 8, 4, 2};
  return kSizes[static_cast<std::size_t>(type)];
}

MegatronType megatron_type_for(std::int64_t vocab) {
  return vocab <= 65536 ? MegatronType::kUint16 : MegatronType::kInt32;
}

MegatronPaths::MegatronPaths(const std::string& path) {
  const std::filesystem::path given(path);
  const std::string extension = given.extension();
  const bool one_of_pair = extension == ".bin" || extension == ".idx";
  const std::string name = one_of_pair ? path.substr(0, path.size() - 4) : path;
  bin = name + ".bin";
  idx = name + ".idx";
}

MegatronReader::MegatronReader(const std::string& path)
    : idx_(MegatronPaths(path).idx), bin_(MegatronPaths(path).bin) {
  read_header();
  check_documents();
  check_sequences();
}

void MegatronReader::read_header() {
  const auto bytes = idx_.bytes();
  const std::string& path = idx_.path();
  PLEAT_REQUIRE(!bytes.empty(), InputError, "PL0502", "'{}' is empty", path);
  PLEAT_REQUIRE(
      idx_.size() >= kHeaderBytes &&
          std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0,
      InputError, "PL0505",
      "'{}' is no Megatron index: it does not start with \"MMIDIDX\"\nHINT: the "
      "older cached format is not read; write the files with Megatron's "
      "preprocess_data or with pleat convert.",
      path);
  const auto version = load<std::uint64_t>(bytes, 9);
  PLEAT_REQUIRE(version == 1, InputError, "PL0505", "'{}' has version {}, expected 1",
                path, version);
  const auto code = load<std::uint8_t>(bytes, 17);
  PLEAT_REQUIRE(code >= 1 && code <= 8, InputError, "PL0505",
                "'{}' has token type {}, expected 1 to 8", path, code);
  type_ = static_cast<MegatronType>(code);

  const auto sequences = load<std::uint64_t>(bytes, 18);
  const auto documents = load<std::uint64_t>(bytes, 26);
  const auto limit = static_cast<std::uint64_t>(idx_.size());
  // The first two conditions keep the third from overflowing.
  const bool possible = sequences <= limit / 12 && documents <= limit / 8;
  const std::uint64_t expected = kHeaderBytes + 12 * sequences + 8 * documents;
  PLEAT_REQUIRE(possible && (limit == expected || limit == expected + sequences),
                InputError, "PL0505",
                "'{}' has {} bytes, which does not fit the {} sequences and {} document "
                "entries that it announces: truncated or damaged",
                path, limit, sequences, documents);
  sequences_ = static_cast<std::int64_t>(sequences);
  document_entries_ = static_cast<std::int64_t>(documents);
}

std::int64_t MegatronReader::sequence_size(std::int64_t sequence) const {
  return load<std::int32_t>(idx_.bytes(), kHeaderBytes + 4 * sequence);
}

std::int64_t MegatronReader::pointer(std::int64_t sequence) const {
  return load<std::int64_t>(idx_.bytes(), kHeaderBytes + 4 * sequences_ + 8 * sequence);
}

std::int64_t MegatronReader::document_begin(std::int64_t document) const {
  return load<std::int64_t>(idx_.bytes(), kHeaderBytes + 12 * sequences_ + 8 * document);
}

void MegatronReader::check_documents() const {
  bool sound = document_entries_ >= 1 && document_begin(0) == 0 &&
               document_begin(document_entries_ - 1) == sequences_;
  for (std::int64_t d = 1; sound && d < document_entries_; ++d) {
    sound = document_begin(d - 1) <= document_begin(d);
  }
  PLEAT_REQUIRE(sound, InputError, "PL0505",
                "the document table of '{}' does not rise from 0 to its {} sequences",
                idx_.path(), sequences_);
}

void MegatronReader::check_sequences() {
  const std::int64_t width = megatron_type_size(type_);
  const std::int64_t bytes = bin_.size();
  std::int64_t used = 0;
  bool adjacent = true;
  for (std::int64_t s = 0; s < sequences_; ++s) {
    const std::int64_t size = sequence_size(s);
    const std::int64_t begin = pointer(s);
    PLEAT_REQUIRE(size >= 0 && begin >= 0, InputError, "PL0505",
                  "sequence {} of '{}' has size {} and offset {}", s, idx_.path(), size,
                  begin);
    PLEAT_REQUIRE(begin <= bytes && size * width <= bytes - begin, InputError, "PL0506",
                  "'{}' has {} bytes, but its index puts the {} bytes of sequence {} at "
                  "byte {}: truncated, or of another index",
                  bin_.path(), bytes, size * width, s, begin);
    adjacent = adjacent && begin == tokens_ * width;
    tokens_ += size;
    used = std::max(used, begin + size * width);
  }
  PLEAT_REQUIRE(used == bytes, InputError, "PL0506",
                "'{}' has {} bytes, but its index describes {}: of another index?",
                bin_.path(), bytes, used);
  if (adjacent) return;
  starts_.reserve(static_cast<std::size_t>(sequences_) + 1);
  starts_.push_back(0);
  for (std::int64_t s = 0; s < sequences_; ++s) {
    starts_.push_back(starts_.back() + sequence_size(s));
  }
}

void MegatronReader::copy(std::int64_t first, std::span<std::int64_t> tokens) const {
  const auto count = static_cast<std::int64_t>(tokens.size());
  PLEAT_ASSERT(first >= 0 && first <= tokens_ - count, "tokens {} + {} of {}", first,
               count, tokens_);
  const std::int64_t width = megatron_type_size(type_);
  if (starts_.empty()) {
    decode(first * width, tokens);
    return;
  }
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), first);
  auto sequence = static_cast<std::int64_t>(after - starts_.begin()) - 1;
  for (std::int64_t done = 0; done < count; ++sequence) {
    const auto s = static_cast<std::size_t>(sequence);
    const std::int64_t skip = first + done - starts_[s];
    const std::int64_t take = std::min(count - done, starts_[s + 1] - starts_[s] - skip);
    decode(
        pointer(sequence) + skip * width,
        tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(take)));
    done += take;
  }
}

void MegatronReader::decode(std::int64_t byte, std::span<std::int64_t> tokens) const {
  switch (type_) {
    case MegatronType::kUint8:
      return decode_as<std::uint8_t>(bin_, byte, tokens);
    case MegatronType::kInt8:
      return decode_as<std::int8_t>(bin_, byte, tokens);
    case MegatronType::kInt16:
      return decode_as<std::int16_t>(bin_, byte, tokens);
    case MegatronType::kInt32:
      return decode_as<std::int32_t>(bin_, byte, tokens);
    case MegatronType::kInt64:
      return decode_as<std::int64_t>(bin_, byte, tokens);
    case MegatronType::kFloat64:
      return decode_as<double>(bin_, byte, tokens);
    case MegatronType::kFloat32:
      return decode_as<float>(bin_, byte, tokens);
    case MegatronType::kUint16:
      return decode_as<std::uint16_t>(bin_, byte, tokens);
  }
}

}  // namespace pleat::io
