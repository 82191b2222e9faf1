// SPDX-License-Identifier: Apache-2.0
#include "file_runs.hpp"

#include <algorithm>

namespace pleat::io {

// Dimensions that the box spans in full leave no gap between the rows of the next slower one.
std::int64_t Piece::run_elements() const {
  std::int64_t run = 1;
  for (std::size_t dim = local_shape.size(); dim-- > 0;) {
    run *= local_shape[dim];
    if (local_shape[dim] != global_shape[dim]) break;
  }
  return run;
}

std::int64_t Piece::global_index(std::int64_t in_box) const {
  std::int64_t index = 0;
  std::int64_t stride = 1;
  for (std::size_t dim = local_shape.size(); dim-- > 0;) {
    index += (local_offset[dim] + in_box % local_shape[dim]) * stride;
    in_box /= local_shape[dim];
    stride *= global_shape[dim];
  }
  return index;
}

std::int64_t Piece::next_offset() const {
  return tensor_offset + global_index(range.begin) * element_bytes;
}

std::int64_t take_runs(Piece& piece, std::int64_t bytes, std::int64_t end, Round& round) {
  constexpr std::int64_t kRunCost = 64;  // bytes: many tiny runs must not fill the memory
  const std::int64_t run = piece.run_elements();
  RoundPart part{.tensor = piece.tensor,
                 .first_element = piece.range.begin,
                 .memory = piece.memory,
                 .first_run = round.runs.size(),
                 .owner = piece.owner};
  std::int64_t cost = 0;
  while (piece.range.size() > 0 && cost < bytes) {
    const std::int64_t offset = piece.next_offset();
    if (offset > end - piece.element_bytes) break;
    const std::int64_t most = std::min({(bytes - cost - 1) / piece.element_bytes + 1,
                                        (end - offset) / piece.element_bytes,
                                        kMostRunBytes / piece.element_bytes});
    const std::int64_t in_run = run - piece.range.begin % run;
    const std::int64_t count = std::min({in_run, piece.range.size(), most});
    const std::int64_t taken = count * piece.element_bytes;
    round.runs.push_back({offset, piece.memory, taken});
    piece.range.begin += count;
    if (piece.memory != nullptr) piece.memory += taken;
    part.bytes += taken;
    cost += std::max(taken, kRunCost);
  }
  part.runs = round.runs.size() - part.first_run;
  if (part.runs > 0) round.parts.push_back(part);
  return cost;
}

}  // namespace pleat::io
