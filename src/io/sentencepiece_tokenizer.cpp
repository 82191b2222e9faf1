// SPDX-License-Identifier: Apache-2.0
#include "sentencepiece_tokenizer.hpp"

#include "pleat/base/error.hpp"
#include "pleat/io/mapped_file.hpp"

#ifdef PLEAT_HAVE_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

namespace pleat::io {

#ifdef PLEAT_HAVE_SENTENCEPIECE

namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) : name_(path) {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    const auto status = processor_.LoadFromSerializedProto(
        {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    PLEAT_REQUIRE(status.ok() && processor_.GetPieceSize() > 0, InputError, "PL0513",
                  "'{}' is no SentencePiece model: {}", path, status.ToString());
  }
  const std::string& name() const override { return name_; }
  std::int64_t vocab() const override { return processor_.GetPieceSize(); }

  /// A model sees a sentence at a time, so long texts go in pieces that end with a line.
  std::vector<std::int32_t> encode(std::string_view text) const override {
    constexpr std::size_t kPiece = 1 << 16;
    std::vector<std::int32_t> tokens;
    while (!text.empty()) {
      const std::size_t line_end =
          text.size() <= kPiece ? std::string_view::npos : text.find('\n', kPiece);
      const std::size_t size =
          line_end == std::string_view::npos ? text.size() : line_end + 1;
      const std::vector<int> piece = encode_piece(text.substr(0, size));
      tokens.insert(tokens.end(), piece.begin(), piece.end());
      text.remove_prefix(size);
    }
    return tokens;
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::vector<int> known;
    for (const std::int32_t token : tokens) {
      if (token >= 0 && token < vocab()) known.push_back(token);
    }
    std::string text;
    const auto status = processor_.Decode(known, &text);
    PLEAT_REQUIRE(status.ok(), InputError, "PL0513", "'{}' cannot decode: {}", name_,
                  status.ToString());
    return text;
  }

 private:
  std::vector<int> encode_piece(std::string_view text) const {
    std::vector<int> piece;
    const auto status = processor_.Encode({text.data(), text.size()}, &piece);
    PLEAT_REQUIRE(status.ok(), InputError, "PL0513", "'{}' cannot encode the text: {}",
                  name_, status.ToString());
    return piece;
  }

  std::string name_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

bool have_sentencepiece() { return true; }

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(path);
}

#else

bool have_sentencepiece() { return false; }

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& path) {
  PLEAT_FAIL(
      InputError, "PL0513",
      "the tokenizer '{}' needs SentencePiece, which this build lacks\nHINT: install "
      "libsentencepiece-dev and build again, or use data.tokenizer = \"bytes\".",
      path);
}

#endif

}  // namespace pleat::io
