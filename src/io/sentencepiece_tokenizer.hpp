// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "pleat/io/tokenizer.hpp"

namespace pleat::io {

/// \throws InputError PL0513 when SentencePiece is not built in or refuses the file
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& path);

}  // namespace pleat::io
