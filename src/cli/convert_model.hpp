// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Models from Hugging Face folders to checkpoints and back, tensor by tensor: no
/// more than one tensor is in memory.

#include <cstdint>
#include <optional>
#include <string>

#include "pleat/io/element_type.hpp"

namespace pleat::cli {

struct ModelConversion {
  std::string from;
  std::string to;
  /// Type of the written tensors; absent: each keeps the one it has.
  std::optional<io::ElementType> type;
  std::int64_t shard_bytes = 5'000'000'000;
  bool force = false;
};

/// \brief Writes a checkpoint with the weights of a model folder, bit for bit unless a
/// type is asked for. \return what was written, for the user \throws InputError PL03xx,
/// PL04xx, PL0920 to PL0923; IoError
std::string convert_to_checkpoint(const ModelConversion& conversion);

/// \brief Writes a model folder with the weights of a checkpoint.
std::string convert_to_hugging_face(const ModelConversion& conversion);

/// \brief The checkpoint that a path means: a file itself, or the newest of a run folder
/// or of a folder of checkpoints. Empty where the path is neither.
std::string resolve_checkpoint(const std::string& path);

}  // namespace pleat::cli
