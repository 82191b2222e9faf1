// SPDX-License-Identifier: Apache-2.0
// Streams of tokens and their cutting into samples.
#include <algorithm>

#include "pleat/base/error.hpp"
#include "pleat/io/mapped_file.hpp"
#include "pleat/io/megatron.hpp"
#include "pleat/io/token_source.hpp"

namespace pleat::io {

namespace {

class ByteStream final : public TokenStream {
 public:
  explicit ByteStream(MappedFile file) : file_(std::move(file)) {}
  const std::string& path() const override { return file_.path(); }
  std::int64_t tokens() const override { return file_.size(); }
  void copy(std::int64_t first, std::span<std::int64_t> tokens) const override {
    const auto from =
        file_.bytes().subspan(static_cast<std::size_t>(first), tokens.size());
    std::transform(from.begin(), from.end(), tokens.begin(),
                   [](std::byte byte) { return std::to_integer<std::int64_t>(byte); });
  }
  std::string format() const override { return "text as bytes"; }

 private:
  MappedFile file_;
};

class HeldStream final : public TokenStream {
 public:
  HeldStream(std::string path, std::string format, std::vector<std::int32_t> tokens)
      : path_(std::move(path)), format_(std::move(format)), tokens_(std::move(tokens)) {}
  const std::string& path() const override { return path_; }
  std::int64_t tokens() const override {
    return static_cast<std::int64_t>(tokens_.size());
  }
  void copy(std::int64_t first, std::span<std::int64_t> tokens) const override {
    std::copy_n(tokens_.begin() + first, tokens.size(), tokens.begin());
  }
  std::string format() const override { return format_; }

 private:
  std::string path_;
  std::string format_;
  std::vector<std::int32_t> tokens_;
};

class MegatronStream final : public TokenStream {
 public:
  explicit MegatronStream(const std::string& path) : path_(path), reader_(path) {}
  const std::string& path() const override { return path_; }
  std::int64_t tokens() const override { return reader_.tokens(); }
  void copy(std::int64_t first, std::span<std::int64_t> tokens) const override {
    reader_.copy(first, tokens);
  }
  std::string format() const override {
    return fmt::format("megatron, {} documents of {}", reader_.documents(),
                       megatron_type_name(reader_.type()));
  }

 private:
  std::string path_;
  MegatronReader reader_;
};

/// Sample i is the tokens i S to (i + 1) S, both included.
class CutStream final : public TokenSource {
 public:
  CutStream(std::unique_ptr<TokenStream> stream, std::int64_t sequence)
      : stream_(std::move(stream)), sequence_(sequence) {}
  const std::string& path() const override { return stream_->path(); }
  std::int64_t samples() const override { return (stream_->tokens() - 1) / sequence_; }
  void read(std::int64_t number, RawSample& sample) const override {
    stream_->copy(number * sequence_, sample.tokens);
    std::fill(sample.loss_mask_S.begin(), sample.loss_mask_S.end(), std::uint8_t{1});
    sample.length = sequence_ + 1;
  }
  std::string description() const override {
    const std::int64_t unused = stream_->tokens() - 1 - samples() * sequence_;
    return fmt::format(
        "{}: {} tokens, {} samples of {}; {} tokens at the end are left out",
        stream_->format(), stream_->tokens(), samples(), sequence_, unused);
  }

 private:
  std::unique_ptr<TokenStream> stream_;
  std::int64_t sequence_;
};

}  // namespace

std::unique_ptr<TokenStream> make_stream(std::string path, std::string format,
                                         std::vector<std::int32_t> tokens) {
  return std::make_unique<HeldStream>(std::move(path), std::move(format),
                                      std::move(tokens));
}

std::unique_ptr<TokenStream> open_text_stream(const std::string& path,
                                              const Tokenizer& tokenizer) {
  MappedFile file(path);
  if (tokenizer.name() == "bytes") return std::make_unique<ByteStream>(std::move(file));
  const auto bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return make_stream(path, fmt::format("text through '{}'", tokenizer.name()),
                     tokenizer.encode(text));
}

std::unique_ptr<TokenStream> open_megatron_stream(const std::string& path) {
  return std::make_unique<MegatronStream>(path);
}

std::unique_ptr<TokenSource> cut_stream(std::unique_ptr<TokenStream> stream,
                                        std::int64_t sequence) {
  const std::int64_t tokens = stream->tokens();
  PLEAT_REQUIRE(tokens > 0, InputError, "PL0502", "'{}' is empty", stream->path());
  PLEAT_REQUIRE(
      tokens > sequence, InputError, "PL0503",
      "'{}' has {} tokens, fewer than the {} of one sample (batch.sequence + 1)\n"
      "HINT: shorten batch.sequence or give more text.",
      stream->path(), tokens, sequence + 1);
  return std::make_unique<CutStream>(std::move(stream), sequence);
}

}  // namespace pleat::io
