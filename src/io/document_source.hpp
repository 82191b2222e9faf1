// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Tokens with their boundaries, on the way from one file format to another.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "pleat/io/token_convert.hpp"

namespace pleat::io {

/// \brief Takes tokens in order.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void append(std::span<const std::int64_t> tokens) = 0;
  virtual void end_sequence() = 0;
  virtual void end_document() = 0;
  /// \return what was written, for the user
  virtual std::string finish() = 0;
};

/// \brief A token file to convert.
class DocumentSource {
 public:
  virtual ~DocumentSource() = default;
  virtual std::int64_t tokens() const = 0;
  /// \brief All tokens are below it.
  virtual std::int64_t vocab() const = 0;
  virtual void feed(TokenSink& sink) const = 0;
};

/// \throws InputError as inspect_token_file, PL0504 for negative tokens
std::unique_ptr<DocumentSource> open_documents(const std::string& path,
                                               const TokenConversion& conversion);

}  // namespace pleat::io
