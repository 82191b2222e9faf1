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
  make_room(needed);
  auto& chunk = chunks_[current_.chunk];
  const auto base = reinterpret_cast<std::uintptr_t>(chunk.data());
  std::byte* const place = chunk.data() + (round_up(base) - base) + current_.used;
  current_.used += needed;
  highest_ = std::max(highest_, begins_[current_.chunk] + current_.used);
  return place;
}

/// Goes on to a chunk that has room. What lies behind is not in use: where a chunk is too small
/// for the request, it goes if it is empty, and what is left of it does otherwise. The order
/// of the stack stays intact.
void Arena::make_room(std::size_t needed) {
  // Wherever the allocator puts a chunk, as much of it is used: what an arena takes in all
  // follows from the requests alone.
  const std::size_t wanted = needed + kAlignment;
  std::size_t used_before = chunks_.empty() ? 0 : begins_[current_.chunk];
  while (current_.chunk < chunks_.size()) {
    begins_[current_.chunk] = used_before;
    auto& chunk = chunks_[current_.chunk];
    if (current_.used + wanted <= chunk.extent(0)) return;
    if (current_.used == 0) {
      drop_chunk(current_.chunk);
      continue;
    }
    const std::size_t begin = current_.used + kAlignment;
    if (begin < chunk.extent(0)) release_pages(chunk.data() + begin, chunk.extent(0) - begin);
    used_before += current_.used;
    current_ = {current_.chunk + 1, 0};
  }
  add_chunk(std::max(wanted, kSmallestChunk));
  begins_.back() = used_before;
}

void Arena::drop_chunk(std::size_t index) {
  chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(index));
  begins_.erase(begins_.begin() + static_cast<std::ptrdiff_t>(index));
  return_freed_memory();
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
