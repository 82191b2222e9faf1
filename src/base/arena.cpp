// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/arena.hpp"

#include <algorithm>

#include "pleat/base/buffer.hpp"

namespace pleat {
namespace {

// Cache lines, vector registers and CUDA's memory transactions all divide it.
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kSmallestChunk = std::size_t{1} << 20;

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::size_t Arena::capacity() const {
  std::size_t bytes = 0;
  for (const auto& chunk : chunks_) bytes += chunk.extent(0);
  return bytes;
}

void* Arena::take_bytes(std::size_t bytes) {
  const std::size_t needed = round_up(std::max<std::size_t>(bytes, 1));
  // A chunk that is too small for this request is skipped; the stack order stays intact.
  while (current_.chunk < chunks_.size()) {
    auto& chunk = chunks_[current_.chunk];
    const auto base = reinterpret_cast<std::uintptr_t>(chunk.data());
    const std::size_t start = round_up(base + current_.used) - base;
    if (start + needed <= chunk.extent(0)) {
      current_.used = start + needed;
      return chunk.data() + start;
    }
    ++current_.chunk;
    current_.used = 0;
  }
  const std::size_t size = std::max(needed + kAlignment, kSmallestChunk);
  chunks_.emplace_back(
      Kokkos::view_alloc(Kokkos::WithoutInitializing, "pleat::Arena::" + name_), size);
  advise_huge_pages(chunks_.back().data(), size);
  const auto base = reinterpret_cast<std::uintptr_t>(chunks_.back().data());
  const std::size_t start = round_up(base) - base;
  current_.used = start + needed;
  return chunks_.back().data() + start;
}

}  // namespace pleat
