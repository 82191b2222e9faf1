// SPDX-License-Identifier: Apache-2.0
#include "document_source.hpp"

#include <algorithm>
#include <vector>

#include "pleat/base/error.hpp"
#include "pleat/io/hdf5_rows.hpp"
#include "pleat/io/megatron.hpp"
#include "pleat/io/token_source.hpp"

namespace pleat::io {

namespace {

constexpr std::int64_t kBlock = 1 << 20;

/// Feeds tokens begin up to end of something with a member copy(first, span).
template <class Stream>
void feed_range(const Stream& stream, std::int64_t begin, std::int64_t end,
                TokenSink& sink) {
  std::vector<std::int64_t> block;
  for (std::int64_t first = begin; first < end; first += kBlock) {
    block.resize(static_cast<std::size_t>(std::min(kBlock, end - first)));
    stream.copy(first, block);
    sink.append(block);
  }
}

class TextDocument final : public DocumentSource {
 public:
  TextDocument(const std::string& path, const std::string& tokenizer)
      : tokenizer_(make_tokenizer(tokenizer)),
        stream_(open_text_stream(path, *tokenizer_)) {}
  std::int64_t tokens() const override { return stream_->tokens(); }
  std::int64_t vocab() const override { return tokenizer_->vocab(); }
  void feed(TokenSink& sink) const override {
    feed_range(*stream_, 0, stream_->tokens(), sink);
    sink.end_document();
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<TokenStream> stream_;
};

class MegatronDocuments final : public DocumentSource {
 public:
  MegatronDocuments(const std::string& path, std::int64_t vocab)
      : reader_(path), vocab_(vocab) {}
  std::int64_t tokens() const override { return reader_.tokens(); }
  std::int64_t vocab() const override { return vocab_; }
  void feed(TokenSink& sink) const override {
    std::int64_t first = 0;
    for (std::int64_t d = 0; d < reader_.documents(); ++d) {
      for (std::int64_t s = reader_.document_begin(d); s < reader_.document_begin(d + 1);
           ++s) {
        feed_range(reader_, first, first + reader_.sequence_size(s), sink);
        sink.end_sequence();
        first += reader_.sequence_size(s);
      }
      sink.end_document();
    }
  }

 private:
  MegatronReader reader_;
  std::int64_t vocab_;
};

class Hdf5Documents final : public DocumentSource {
 public:
  Hdf5Documents(const std::string& path, const std::string& dataset, std::int64_t vocab)
      : file_(Hdf5File::open_read(path)),
        rows_(open_rows(file_, dataset)),
        vocab_(vocab),
        joined_(find_joined()) {}
  std::int64_t tokens() const override {
    if (rows_.rows() == 0 || rows_.width() == 0) return 0;
    return joined_ ? rows_.rows() * (rows_.width() - 1) + 1
                   : rows_.rows() * rows_.width();
  }
  std::int64_t vocab() const override { return vocab_; }
  void feed(TokenSink& sink) const override {
    std::vector<std::int64_t> row(static_cast<std::size_t>(rows_.width()));
    for (std::int64_t i = 0; i < rows_.rows(); ++i) {
      rows_.read(i, row);
      sink.append(std::span(row).subspan(joined_ && i > 0 ? 1 : 0));
      if (!joined_) sink.end_document();
    }
    if (joined_) sink.end_document();
  }

 private:
  /// Whether each row begins with the last token of the one before.
  bool find_joined() const {
    if (rows_.width() < 2) return false;
    std::vector<std::int64_t> row(static_cast<std::size_t>(rows_.width()));
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < rows_.rows(); ++i) {
      rows_.read(i, row);
      if (i > 0 && row.front() != last) return false;
      last = row.back();
    }
    return true;
  }

  Hdf5File file_;
  Hdf5Rows rows_;
  std::int64_t vocab_;
  bool joined_;
};

}  // namespace

std::unique_ptr<DocumentSource> open_documents(const std::string& path,
                                               const TokenConversion& conversion) {
  const DataFormat format = detect_token_format(path);
  if (format == DataFormat::kText) {
    return std::make_unique<TextDocument>(path, conversion.tokenizer);
  }
  const TokenFileInfo info = inspect_token_file(path, conversion.dataset);
  PLEAT_REQUIRE(info.smallest >= 0, InputError, "PL0504",
                "'{}' has the negative token {}", path, info.smallest);
  if (format == DataFormat::kMegatron) {
    return std::make_unique<MegatronDocuments>(path, info.largest + 1);
  }
  return std::make_unique<Hdf5Documents>(path, conversion.dataset, info.largest + 1);
}

}  // namespace pleat::io
