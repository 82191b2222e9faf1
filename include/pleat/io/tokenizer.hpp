// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Text to token ids and back.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pleat::io {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// \brief As written in the deck: "bytes" or the path of a model.
  virtual const std::string& name() const = 0;
  /// \brief Ids are below it.
  virtual std::int64_t vocab() const = 0;
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// \brief Ids that the tokenizer does not know become nothing. Bytes need not be UTF-8.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
};

/// \brief The tokenizer of a deck.
/// \param name  "bytes" (token = byte, 256 of them) or a SentencePiece model "path/to/x.model"
/// \throws InputError PL0513 unknown, unreadable, or SentencePiece not built in
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

/// \brief Whether this build reads SentencePiece models.
bool have_sentencepiece();

}  // namespace pleat::io
