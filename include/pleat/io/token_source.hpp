// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief One file of samples, whatever its format: the layer below TokenData.
///
/// S tokens of a sequence. A sample has S + 1 tokens: inputs 0 .. S - 1, labels 1 .. S.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pleat/io/token_data.hpp"
#include "pleat/io/tokenizer.hpp"

namespace pleat::io {

/// \brief One sample as it stands in the file: the reader of the data checks the tokens.
struct RawSample {
  explicit RawSample(std::int64_t sequence)
      : tokens(static_cast<std::size_t>(sequence + 1)),
        loss_mask_S(static_cast<std::size_t>(sequence)) {}
  std::vector<std::int64_t> tokens;       ///< [S + 1]
  std::vector<std::uint8_t> loss_mask_S;  ///< 1: the position carries loss
  std::int64_t length = 0;                ///< real tokens, the rest is padding
};

/// \brief Samples by number.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual const std::string& path() const = 0;
  virtual std::int64_t samples() const = 0;
  /// \brief Fills every field of the sample.
  virtual void read(std::int64_t number, RawSample& sample) const = 0;
  /// \brief For the log, without the path: format, tokens, samples, what is left out.
  virtual std::string description() const = 0;
};

/// \brief A sequence of tokens without sample boundaries.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  virtual const std::string& path() const = 0;
  virtual std::int64_t tokens() const = 0;
  /// \brief Copies tokens first, first + 1, ...
  virtual void copy(std::int64_t first, std::span<std::int64_t> tokens) const = 0;
  virtual std::string format() const = 0;
};

/// \brief A text file; bytes are read in place, other tokenizers encode it in memory.
std::unique_ptr<TokenStream> open_text_stream(const std::string& path,
                                              const Tokenizer& tokenizer);
/// \brief The sequences of a Megatron pair in the order of the index.
std::unique_ptr<TokenStream> open_megatron_stream(const std::string& path);
/// \brief A stream that holds its tokens.
std::unique_ptr<TokenStream> make_stream(std::string path, std::string format,
                                         std::vector<std::int32_t> tokens);

/// \brief Cuts a stream into samples of S + 1 tokens. Consecutive ones overlap by one
/// token, so that each token but the first is a label once; an incomplete last sample is
/// dropped.
/// \throws InputError PL0502 empty, PL0503 shorter than one sample
std::unique_ptr<TokenSource> cut_stream(std::unique_ptr<TokenStream> stream,
                                        std::int64_t sequence);

/// \brief The datasets named by the configuration in an HDF5 file.
/// \throws InputError PL0502, PL0507 .. PL0510
std::unique_ptr<TokenSource> open_hdf5_source(const std::string& path,
                                              const DataConfig& config,
                                              std::int64_t sequence);

/// \brief A noisy walk: the next token is a fixed function of the present one with
/// probability kSyntheticOrder and uniformly random otherwise.
std::unique_ptr<TokenSource> make_synthetic_source(std::int64_t samples,
                                                   std::int64_t sequence,
                                                   std::int64_t vocab,
                                                   std::uint64_t seed);
inline constexpr double kSyntheticOrder = 0.8;

}  // namespace pleat::io
