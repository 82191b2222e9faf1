// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What is in a token file, and token files of one format from those of another:
/// the part of `pleat inspect` and `pleat convert` that deals with data.

#include <cstdint>
#include <string>
#include <vector>

#include "pleat/io/token_data.hpp"

namespace pleat::io {

/// \brief The contents of a token file, all of it read.
struct TokenFileInfo {
  DataFormat format = DataFormat::kText;
  std::string type;  ///< of one token: "uint16", "int32", "byte"
  std::int64_t tokens = 0;
  std::int64_t sequences = 1;       ///< Megatron's sequences, or rows of the HDF5 dataset
  std::int64_t documents = 1;       ///< Megatron only, else 1
  std::int64_t row = 0;             ///< hdf5: length of a row, batch.sequence + 1
  std::int64_t smallest = 0;        ///< token
  std::int64_t largest = 0;         ///< token: data for vocabularies above it
  std::int64_t distinct = 0;        ///< different tokens
  std::vector<std::int64_t> shape;  ///< hdf5: of the dataset
};

/// \brief How a file would be read: by its ending (.bin, .idx, .h5, .hdf5), then by its
/// first bytes; a name without ending that has a .idx beside it is Megatron's; else text.
DataFormat detect_token_format(const std::string& path);

/// \param dataset  hdf5: the one to read
/// \throws InputError as open_token_data does
TokenFileInfo inspect_token_file(const std::string& path,
                                 const std::string& dataset = "tokens");

/// \brief One fact per line, for the terminal.
std::string to_text(const TokenFileInfo& info);

struct TokenConversion {
  std::string tokenizer = "bytes";  ///< of text
  std::string dataset = "tokens";   ///< of HDF5 files, from and to
  std::int64_t sequence = 0;        ///< to hdf5: rows are this + 1 tokens long
};

/// \brief Whether convert_token_file can write such a name: .bin, .idx, .h5, .hdf5.
bool is_token_target(const std::string& path);

/// \brief Converts text, Megatron and HDF5 token files to Megatron or HDF5 ones.
///
/// - A text is one document.
/// - To HDF5, the documents' tokens are cut one after another into rows that overlap by
///   one token, as training would cut them; an incomplete last row is left out.
/// - From HDF5, rows that all begin with the last token of the one before are joined
///   again to one document; otherwise each row becomes a document.
/// - The target appears under its name when it is complete.
///
/// \return what was written, for the user
/// \throws InputError PL05xx: the source's faults, PL0515 an impossible target; IoError
std::string convert_token_file(const std::string& from, const std::string& to,
                               const TokenConversion& conversion);

}  // namespace pleat::io
