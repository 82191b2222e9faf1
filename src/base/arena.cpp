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

void Arena::add_chunk(std::size_t bytes) {
  chunks_.emplace_back(
      Kokkos::view_alloc(Kokkos::WithoutInitializing, "pleat::Arena::" + name_), bytes);
  advise_huge_pages(chunks_.back().data(), bytes);
  begins_.push_back(0);
  ++allocations_;
}

void* Arena::take_bytes(std::size_t bytes) {
  const std::size_t needed = round_up(std::max<std::size_t>(bytes, 1));
  std::size_t used_before = 0;
  // A chunk that is too small for this request is skipped; the stack order stays intact.
  for (;;) {
    if (current_.chunk == chunks_.size()) {
      add_chunk(std::max(needed + kAlignment, kSmallestChunk));
      begins_.back() = used_before;
    }
    // Wherever the allocator puts a chunk, as much of it is used: what an arena takes in all
    // follows from the requests alone.
    auto& chunk = chunks_[current_.chunk];
    if (current_.used + needed + kAlignment <= chunk.extent(0)) {
      const auto base = reinterpret_cast<std::uintptr_t>(chunk.data());
      std::byte* const place = chunk.data() + (round_up(base) - base) + current_.used;
      current_.used += needed;
      highest_ = std::max(highest_, begins_[current_.chunk] + current_.used);
      return place;
    }
    used_before = begins_[current_.chunk] + current_.used;
    ++current_.chunk;
    if (current_.chunk < chunks_.size()) begins_[current_.chunk] = used_before;
    current_.used = 0;
  }
}

void Arena::reset(const Mark& mark) {
  current_ = mark;
  if (mark.chunk == 0 && mark.used == 0 && chunks_.size() > 1) merge_chunks();
}

/// A sixteenth of reserve, so that sizes that vary do not make it grow again and again.
void Arena::merge_chunks() {
  const std::size_t bytes = round_up(highest_ + highest_ / 16 + kAlignment);
  chunks_.clear();
  begins_.clear();
  return_freed_memory();
  add_chunk(std::max(bytes, kSmallestChunk));
}

}  // namespace pleat
