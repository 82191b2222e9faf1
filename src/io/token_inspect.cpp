// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <unordered_set>

#include "pleat/base/error.hpp"
#include "pleat/io/hdf5_rows.hpp"
#include "pleat/io/mapped_file.hpp"
#include "pleat/io/megatron.hpp"
#include "pleat/io/places.hpp"
#include "pleat/io/token_convert.hpp"
#include "pleat/io/token_source.hpp"

namespace pleat::io {

namespace {

constexpr std::int64_t kBlock = 1 << 16;

/// Gathers what a look at every token tells.
class TokenStatistics {
 public:
  void add(std::span<const std::int64_t> tokens) {
    for (const std::int64_t token : tokens) {
      smallest_ = any_ ? std::min(smallest_, token) : token;
      largest_ = any_ ? std::max(largest_, token) : token;
      any_ = true;
      // A set for any id at all, behind a table for those of real vocabularies.
      if (token >= 0 && token < static_cast<std::int64_t>(seen_.size())) {
        if (!seen_[static_cast<std::size_t>(token)]) ++distinct_;
        seen_[static_cast<std::size_t>(token)] = true;
      } else if (others_.insert(token).second) {
        ++distinct_;
      }
    }
  }
  void store(TokenFileInfo& info) const {
    info.smallest = smallest_;
    info.largest = largest_;
    info.distinct = distinct_;
  }

 private:
  bool any_ = false;
  std::int64_t smallest_ = 0;
  std::int64_t largest_ = 0;
  std::int64_t distinct_ = 0;
  std::vector<bool> seen_ = std::vector<bool>(1 << 20);
  std::unordered_set<std::int64_t> others_;
};

void look_at_all(const TokenStream& stream, TokenFileInfo& info) {
  TokenStatistics statistics;
  std::vector<std::int64_t> block;
  for (std::int64_t first = 0; first < stream.tokens(); first += kBlock) {
    block.resize(static_cast<std::size_t>(std::min(kBlock, stream.tokens() - first)));
    stream.copy(first, block);
    statistics.add(block);
  }
  info.tokens = stream.tokens();
  statistics.store(info);
}

TokenFileInfo inspect_hdf5(const std::string& path, const std::string& dataset) {
  const Hdf5File file = Hdf5File::open_read(path);
  const Hdf5Rows rows = open_rows(file, dataset);
  TokenFileInfo info;
  info.type = rows.type_text();
  info.sequences = rows.rows();
  info.row = rows.width();
  info.tokens = rows.rows() * rows.width();
  info.shape = rows.shape();
  TokenStatistics statistics;
  std::vector<std::int64_t> row(static_cast<std::size_t>(rows.width()));
  for (std::int64_t i = 0; i < rows.rows() && info.tokens > 0; ++i) {
    rows.read(i, row);
    statistics.add(row);
  }
  statistics.store(info);
  return info;
}

TokenFileInfo inspect_megatron(const std::string& path) {
  TokenFileInfo info;
  const MegatronReader reader(path);
  info.type = megatron_type_name(reader.type());
  info.sequences = reader.sequences();
  info.documents = reader.documents();
  look_at_all(*open_megatron_stream(path), info);
  return info;
}

TokenFileInfo inspect_text(const std::string& path) {
  TokenFileInfo info;
  info.type = "byte";
  look_at_all(*open_text_stream(path, *make_tokenizer("bytes")), info);
  return info;
}

bool starts_like_hdf5(const std::string& path) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  const MappedFile file(path);
  return file.size() >= static_cast<std::int64_t>(kSignature.size()) &&
         std::memcmp(file.bytes().data(), kSignature.data(), kSignature.size()) == 0;
}

}  // namespace

DataFormat detect_token_format(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension();
  if (extension == ".bin" || extension == ".idx") return DataFormat::kMegatron;
  if (extension == ".h5" || extension == ".hdf5") return DataFormat::kHdf5;
  const bool exists = is_there(path);
  if (!exists && is_there(path + ".idx")) return DataFormat::kMegatron;
  if (exists && starts_like_hdf5(path)) return DataFormat::kHdf5;
  return DataFormat::kText;
}

TokenFileInfo inspect_token_file(const std::string& path, const std::string& dataset) {
  const DataFormat format = detect_token_format(path);
  TokenFileInfo info;
  if (format == DataFormat::kMegatron) {
    info = inspect_megatron(path);
  } else if (format == DataFormat::kHdf5) {
    info = inspect_hdf5(path, dataset);
  } else {
    info = inspect_text(path);
  }
  info.format = format;
  return info;
}

std::string to_text(const TokenFileInfo& info) {
  std::string text;
  if (info.format == DataFormat::kText) {
    text = fmt::format("format       text\ntokens       {} bytes\n", info.tokens);
  } else if (info.format == DataFormat::kMegatron) {
    text = fmt::format(
        "format       Megatron index of {}\ntokens       {}\n"
        "sequences    {}\ndocuments    {}\n",
        info.type, info.tokens, info.sequences, info.documents);
  } else {
    text = fmt::format(
        "format       HDF5 dataset of {}\nshape        {}\ntokens       {}\n"
        "samples      {} of batch.sequence = {}\n",
        info.type, fmt::join(info.shape, " x "), info.tokens, info.sequences,
        info.row - 1);
  }
  if (info.tokens == 0) return text;
  return text + fmt::format("token ids    {} to {}, {} different\n", info.smallest,
                            info.largest, info.distinct);
}

}  // namespace pleat::io
