// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/token_convert.hpp"

#include <cstring>
#include <filesystem>

#include <mpi.h>
#include <unistd.h>

#include "document_source.hpp"
#include "pending_file.hpp"
#include "pleat/base/error.hpp"
#include "pleat/io/hdf5.hpp"
#include "pleat/io/megatron.hpp"

namespace pleat::io {

namespace {

class MegatronSink final : public TokenSink {
 public:
  MegatronSink(const std::string& path, MegatronType type)
      : path_(path), type_(type), writer_(path, type) {}
  void append(std::span<const std::int64_t> tokens) override {
    writer_.append(tokens);
    tokens_ += static_cast<std::int64_t>(tokens.size());
  }
  void end_sequence() override { writer_.end_sequence(); }
  void end_document() override {
    writer_.end_document();
    ++documents_;
  }
  std::string finish() override {
    writer_.finish();
    const MegatronPaths paths(path_);
    return fmt::format("'{}' and '{}': {} tokens of {} in {} documents", paths.bin,
                       paths.idx, tokens_, megatron_type_name(type_), documents_);
  }

 private:
  std::string path_;
  MegatronType type_;
  MegatronWriter writer_;
  std::int64_t tokens_ = 0;
  std::int64_t documents_ = 0;
};

Hdf5Type hdf5_type_for(std::int64_t vocab) {
  if (vocab <= 256) return Hdf5Type::kUint8;
  if (vocab <= 65536) return Hdf5Type::kUint16;
  return vocab <= (std::int64_t{1} << 31) ? Hdf5Type::kInt32 : Hdf5Type::kInt64;
}

/// Cuts the tokens into rows, the last token of each being the first of the next.
class Hdf5Sink final : public TokenSink {
 public:
  Hdf5Sink(const std::string& path, const TokenConversion& conversion,
           const DocumentSource& source)
      : pending_(path),
        width_(conversion.sequence + 1),
        rows_((source.tokens() - 1) / conversion.sequence),
        tokens_(source.tokens()),
        name_(conversion.dataset),
        file_(Hdf5File::create(pending_.temporary(), MPI_COMM_SELF)),
        dataset_(file_.root().create_dataset(name_, {rows_, width_},
                                             hdf5_type_for(source.vocab()))) {}

  void append(std::span<const std::int64_t> tokens) override {
    held_.insert(held_.end(), tokens.begin(), tokens.end());
    if (held_.size() >= kFlushTokens) flush();
  }
  void end_sequence() override {}
  void end_document() override {}
  std::string finish() override {
    flush();
    dataset_.reset();
    file_.close();
    pending_.commit();
    return fmt::format(
        "'{}', dataset '{}': {} samples of {}; {} tokens at the end are left "
        "out",
        pending_.path(), name_, rows_, width_ - 1, tokens_ - 1 - rows_ * (width_ - 1));
  }

 private:
  static constexpr std::size_t kFlushTokens = 1 << 20;

  void flush() {
    const std::int64_t step = width_ - 1;
    const std::int64_t whole = (static_cast<std::int64_t>(held_.size()) - 1) / step;
    if (whole <= 0) return;
    std::vector<std::int64_t> block;
    for (std::int64_t row = 0; row < whole; ++row) {
      const auto begin = held_.begin() + row * step;
      block.insert(block.end(), begin, begin + width_);
    }
    dataset_->write<std::int64_t>({written_, 0}, {whole, width_}, block);
    written_ += whole;
    held_.erase(held_.begin(), held_.begin() + whole * step);
  }

  PendingFile pending_;
  std::int64_t width_;
  std::int64_t rows_;
  std::int64_t tokens_;
  std::string name_;
  Hdf5File file_;
  std::optional<Hdf5Dataset> dataset_;
  std::int64_t written_ = 0;
  std::vector<std::int64_t> held_;
};

/// Before anything is read, so that a long conversion does not fail at its end.
void check_target(const std::string& from, const std::string& to,
                  const TokenConversion& conversion) {
  PLEAT_REQUIRE(is_token_target(to), InputError, "PL0515",
                "cannot tell the format of '{}'\nHINT: token files end in .bin or .idx "
                "(Megatron), .h5 or .hdf5.",
                to);
  std::filesystem::path folder = std::filesystem::path(to).parent_path();
  if (folder.empty()) folder = ".";
  PLEAT_REQUIRE(::access(folder.c_str(), W_OK) == 0, InputError, "PL0515",
                "cannot write to the folder '{}' of '{}': {}", folder.string(), to,
                std::strerror(errno));
  const bool to_hdf5 = detect_token_format(to) == DataFormat::kHdf5;
  PLEAT_REQUIRE(!to_hdf5 || conversion.sequence > 0, InputError, "PL0515",
                "an HDF5 file of tokens needs the length of its samples\nHINT: give the "
                "batch.sequence with which it is to be trained.");
  const bool both_megatron =
      !to_hdf5 && detect_token_format(from) == DataFormat::kMegatron;
  const bool same =
      to == from || (both_megatron && MegatronPaths(to).bin == MegatronPaths(from).bin);
  PLEAT_REQUIRE(!same, InputError, "PL0515", "'{}' would be written over itself", to);
}

std::unique_ptr<TokenSink> open_sink(const std::string& to,
                                     const TokenConversion& conversion,
                                     const DocumentSource& source) {
  if (detect_token_format(to) == DataFormat::kMegatron) {
    return std::make_unique<MegatronSink>(to, megatron_type_for(source.vocab()));
  }
  return std::make_unique<Hdf5Sink>(to, conversion, source);
}

}  // namespace

bool is_token_target(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension();
  return extension == ".bin" || extension == ".idx" || extension == ".h5" ||
         extension == ".hdf5";
}

std::string convert_token_file(const std::string& from, const std::string& to,
                               const TokenConversion& conversion) {
  check_target(from, to, conversion);
  const std::unique_ptr<DocumentSource> source = open_documents(from, conversion);
  PLEAT_REQUIRE(source->tokens() > 0, InputError, "PL0502", "'{}' is empty", from);
  PLEAT_REQUIRE(source->tokens() > conversion.sequence, InputError, "PL0503",
                "'{}' has {} tokens, fewer than the {} of one sample", from,
                source->tokens(), conversion.sequence + 1);
  const std::unique_ptr<TokenSink> sink = open_sink(to, conversion, *source);
  source->feed(*sink);
  return sink->finish();
}

}  // namespace pleat::io
