// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/tokenizer.hpp"

#include <algorithm>

#include "pleat/base/error.hpp"
#include "sentencepiece_tokenizer.hpp"

namespace pleat::io {

namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  const std::string& name() const override { return name_; }
  std::int64_t vocab() const override { return 256; }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> tokens(text.size());
    std::transform(text.begin(), text.end(), tokens.begin(),
                   [](char c) { return static_cast<unsigned char>(c); });
    return tokens;
  }
  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    for (const std::int32_t token : tokens) {
      if (token >= 0 && token < 256) text.push_back(static_cast<char>(token));
    }
    return text;
  }

 private:
  std::string name_ = "bytes";
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  PLEAT_REQUIRE(name.ends_with(".model"), InputError, "PL0513",
                "the tokenizer '{}' is unknown\nHINT: data.tokenizer is \"bytes\" or the "
                "path of a SentencePiece model, which ends in .model.",
                name);
  return make_sentencepiece_tokenizer(name);
}

}  // namespace pleat::io
