// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What a checkpoint says about itself: its root attributes.

#include <cstdint>
#include <string>
#include <vector>

#include "pleat/io/element_type.hpp"
#include "pleat/io/hdf5.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::io {

/// \brief Version 1 knows no sigmoid scores, choice by groups, router bias or dropping;
/// version 2 no history and nothing of skipped batches.
inline constexpr std::int64_t kCheckpointFormat = 3;

/// \brief The root attributes of a checkpoint.
struct CheckpointInfo {
  std::int64_t format_version = kCheckpointFormat;
  std::int64_t step = 0;         ///< optimizer steps done
  std::int64_t next_sample = 0;  ///< number of the next training sample: the data cursor
  plan::ModelConfig model;
  std::string precision;  ///< "fp64", "fp32", ...: what the run computed in
  std::string deck;       ///< resolved; empty for a converted model
  std::string grid;       ///< the mapping that wrote the file
  std::string build;      ///< version, compiler, back end
  /// config.json of the model that training started from, if it came from Hugging Face.
  std::string hugging_face_config;

  // Since version 3.
  /// A line for each job that had a part in it, oldest first (train/run_history.hpp).
  std::string history;
  std::int64_t skipped = 0;    ///< batches that were left out so far
  std::int64_t rollbacks = 0;  ///< returns to a checkpoint so far
  /// What the loss guard compares the next loss with, oldest first.
  std::vector<double> recent_losses;
  /// Of the training data (TokenData::identity()); empty where it is not known, as in files of
  /// version 3 that were written before it was kept.
  std::string data_identity;
};

/// \brief Writes every field as an attribute of the root. \throws IoError PL0303
void write_checkpoint_info(Hdf5Group& root, const CheckpointInfo& info);

/// \brief Reads them. \throws InputError PL0302 an attribute is missing or ill-typed,
/// PL0305 not a checkpoint, PL0306 a newer format
CheckpointInfo read_checkpoint_info(const Hdf5Group& root);

/// \brief All fields as bytes, to be sent to another rank of the same program.
std::string pack_checkpoint_info(const CheckpointInfo& info);
CheckpointInfo unpack_checkpoint_info(const std::string& bytes);

/// \brief Size of all that is not elements in a checkpoint's file, rather too large than
/// too small.
std::int64_t checkpoint_metadata_bytes(const CheckpointInfo& info, std::int64_t tensors);

/// \brief One line of the text that `metadata_checksum` covers, for one data set.
/// \param path  "/parameters/model.norm.weight"
std::string checkpoint_table_line(const std::string& path, ElementType type,
                                  const tensor::Shape& shape, std::uint64_t checksum);

/// \brief FNV-1a of all root attributes but itself, then the lines of all data sets.
/// \param table  the lines, sorted by path
std::uint64_t metadata_checksum(const Hdf5Group& root, const std::string& table);

/// \brief 16 hexadecimal digits.
std::string checksum_text(std::uint64_t checksum);
/// \throws InputError PL0307 not 16 hexadecimal digits
std::uint64_t parse_checksum(const std::string& text, const std::string& place);

}  // namespace pleat::io
