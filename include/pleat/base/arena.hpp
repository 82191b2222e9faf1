// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Memory for the tensors of one step, taken once and used again in every step.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "pleat/base/error.hpp"
#include "pleat/base/types.hpp"

namespace pleat {

/// \brief A stack of device memory.
///
/// Tensors are taken with take() and all given back at once by going back to a mark, which
/// ArenaScope does at the end of a block. The first steps may add chunks, and give back to the
/// system what they find too small, so that little more is held than is in use; when everything
/// has been given back, several chunks are replaced by a single one for all that was held at once.
/// Later steps find their memory there, so a step in its steady state allocates nothing
/// (`allocations()` is what the test counts), also where sizes vary a little from step to step.
/// Not for several threads at once.
class Arena {
 public:
  explicit Arena(std::string name) : name_(std::move(name)) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// \brief An uninitialised tensor; its memory is valid until the arena is reset below it.
  template <class T, class... Extents>
  DeviceView<T, static_cast<int>(sizeof...(Extents))> take(Extents... extents) {
    const std::size_t count = (std::size_t{1} * ... * static_cast<std::size_t>(extents));
    T* pointer = static_cast<T*>(take_bytes(count * sizeof(T)));
    return DeviceView<T, static_cast<int>(sizeof...(Extents))>(
        pointer, static_cast<std::size_t>(extents)...);
  }

  struct Mark {
    std::size_t chunk = 0;
    std::size_t used = 0;
  };
  Mark mark() const { return current_; }
  /// \brief Gives back everything that was taken after the mark; no work that is queued on a
  /// host thread may still use it.
  void reset(const Mark& mark);

  /// \brief Bytes held, used or not.
  std::size_t capacity() const;
  /// \brief How many chunks were ever allocated.
  std::size_t allocations() const { return allocations_; }

 private:
  void* take_bytes(std::size_t bytes);
  void make_room(std::size_t needed);
  void add_chunk(std::size_t bytes);
  void drop_chunk(std::size_t index);
  void merge_chunks();

  std::string name_;
  std::vector<DeviceView<std::byte, 1>> chunks_;
  std::vector<std::size_t> begins_;  ///< bytes that the chunks before each one hold in use
  Mark current_;
  std::size_t highest_ = 0;  ///< most bytes in use at once, gaps at the ends of chunks left out
  std::size_t allocations_ = 0;
};

/// \brief Gives back at the end of its block what was taken inside it.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.reset(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace pleat
