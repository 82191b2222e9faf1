// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Megatron's indexed token files: NAME.bin has the tokens, NAME.idx says where
/// the sequences and documents lie.
///
/// The index, little-endian without padding: 9 bytes "MMIDIDX\0\0", u64 version 1, u8
/// type, u64 sequences N, u64 entries of the document table D, i32 sizes[N] in tokens,
/// i64 pointers[N] in bytes, i64 documents[D]. Document d is the sequences documents[d]
/// up to documents[d + 1]. Multimodal files append i8 modes[N], which is skipped.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pleat/io/mapped_file.hpp"

namespace pleat::io {

/// \brief How a token is stored; the values are those of the file.
enum class MegatronType : std::uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat64 = 6,
  kFloat32 = 7,
  kUint16 = 8,
};
std::string_view megatron_type_name(MegatronType type);
std::int64_t megatron_type_size(MegatronType type);
/// \brief As Megatron would choose: uint16 where the vocabulary allows, else int32.
MegatronType megatron_type_for(std::int64_t vocab);

/// \brief The two files of "NAME", "NAME.bin" or "NAME.idx".
struct MegatronPaths {
  explicit MegatronPaths(const std::string& path);
  std::string bin;
  std::string idx;
};

/// \brief Reads a pair. All of the index is checked when it is opened.
class MegatronReader {
 public:
  /// \throws InputError PL0501 missing, PL0502 empty, PL0505 not an index, PL0506 index
  ///   and tokens disagree
  explicit MegatronReader(const std::string& path);

  MegatronType type() const { return type_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t documents() const { return document_entries_ - 1; }
  /// \brief Tokens of a sequence.
  std::int64_t sequence_size(std::int64_t sequence) const;
  /// \brief First sequence of a document; of number documents(): sequences().
  std::int64_t document_begin(std::int64_t document) const;
  /// \brief Copies tokens first, first + 1, ... of all sequences, one after another in
  /// the order of the index.
  /// \throws InputError PL0504 a floating-point value that is not whole
  void copy(std::int64_t first, std::span<std::int64_t> tokens) const;

 private:
  void read_header();
  void check_documents() const;
  void check_sequences();
  std::int64_t pointer(std::int64_t sequence) const;
  void decode(std::int64_t byte, std::span<std::int64_t> tokens) const;

  MappedFile idx_;
  MappedFile bin_;
  MegatronType type_ = MegatronType::kUint16;
  std::int64_t sequences_ = 0;
  std::int64_t document_entries_ = 0;
  std::int64_t tokens_ = 0;
  /// First token of each sequence and the end, kept only where the sequences do not lie
  /// one after another in the file.
  std::vector<std::int64_t> starts_;
};

class PendingFile;

/// \brief Writes a pair. The files get their names when it is finished; before that they
/// end in ".tmp", and an unfinished writer removes them.
class MegatronWriter {
 public:
  /// \throws InputError PL0515 when the folder cannot be written to
  MegatronWriter(const std::string& path, MegatronType type);
  ~MegatronWriter();

  /// \brief Adds to the open sequence; one of more than 2^31 - 1 tokens is continued in
  /// another. \throws InputError PL0504 a token does not fit the type
  void append(std::span<const std::int64_t> tokens);
  void end_sequence();
  /// \brief Ends the open sequence too.
  void end_document();
  /// \throws IoError PL0516
  void finish();

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Closer>;
  static void write(const File& file, const void* data, std::size_t bytes,
                    const std::string& path);
  static void close(File& file, const std::string& path);
  void write_index() const;

  std::unique_ptr<PendingFile> pending_bin_;
  std::unique_ptr<PendingFile> pending_idx_;
  MegatronType type_;
  File bin_;
  std::int64_t open_tokens_ = 0;
  std::vector<std::int32_t> sizes_;
  std::vector<std::int64_t> documents_{0};
};

}  // namespace pleat::io
