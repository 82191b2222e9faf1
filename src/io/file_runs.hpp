// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Ranges of boxes of tensors as runs of consecutive bytes of a file.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "pleat/io/element_type.hpp"
#include "pleat/tensor/parameter_layout.hpp"

namespace pleat::io {

/// \brief Consecutive bytes of a file and their place in memory.
struct FileRun {
  std::int64_t offset = 0;  ///< in the file
  std::byte* memory = nullptr;
  std::int64_t bytes = 0;
};

/// \brief A part of a tensor that one rank writes or reads: a range of the row-major order of
/// its box, which also lies in this order in memory.
struct Piece {
  std::size_t tensor = 0;         ///< a number of the owner's choice
  std::int64_t tensor_offset = 0;  ///< of the tensor's first element in the file
  std::int64_t element_bytes = 1;
  tensor::Shape global_shape;
  tensor::Shape local_shape;
  tensor::Shape local_offset;
  tensor::Range range;          ///< what has not been taken yet
  std::byte* memory = nullptr;  ///< of the first element of `range`; or none yet
  std::shared_ptr<std::byte[]> owner = {};  ///< of the memory, where it is not the caller's

  std::int64_t rest_bytes() const { return range.size() * element_bytes; }
  /// \brief Elements that follow each other in the file before the box makes a jump.
  std::int64_t run_elements() const;
  /// \brief Where an element of the box lies in the tensor's row-major order.
  std::int64_t global_index(std::int64_t in_box) const;
  /// \brief Where the first element that has not been taken lies in the file.
  std::int64_t next_offset() const;
};

/// \brief The part of a round that comes from one piece.
struct RoundPart {
  std::size_t tensor = 0;
  std::int64_t first_element = 0;  ///< in the row-major order of the box
  std::byte* memory = nullptr;  ///< of its first element
  std::int64_t bytes = 0;
  std::size_t first_run = 0;  ///< its runs in the round, in the order of memory
  std::size_t runs = 0;
  std::shared_ptr<std::byte[]> owner = {};
};

/// \brief What is written or read at a time.
struct Round {
  std::vector<RoundPart> parts;
  std::vector<FileRun> runs;
  std::span<FileRun> runs_of(const RoundPart& part) {
    return std::span(runs).subspan(part.first_run, part.runs);
  }
};

/// \brief Takes elements from the front of a piece into a round: at most about so many bytes,
/// and none that ends beyond `end` in the file. \return the bytes taken, those of tiny runs
/// counted higher, because noting them takes memory too
std::int64_t take_runs(Piece& piece, std::int64_t bytes, std::int64_t end, Round& round);

inline constexpr std::int64_t kMostRunBytes = 1 << 30;  // MPI counts in int
inline constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

}  // namespace pleat::io
