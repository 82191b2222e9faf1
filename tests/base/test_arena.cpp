// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/arena.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>

namespace pleat {
namespace {

std::uintptr_t address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

TEST(Arena, TensorsAreAlignedAndDoNotOverlap) {
  Arena arena("test");
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> taken;
  for (const std::int64_t count : {1, 3, 64, 1000, 0, 17, 300000, 5}) {
    const auto view = arena.take<float>(count, 3);
    EXPECT_EQ(address(view.data()) % 256, 0U);
    EXPECT_EQ(view.extent(0), static_cast<std::size_t>(count));
    EXPECT_EQ(view.extent(1), 3U);
    const auto begin = address(view.data());
    const auto end = begin + view.size() * sizeof(float);
    for (const auto& other : taken) {
      EXPECT_TRUE(end <= other.first || other.second <= begin);
    }
    taken.emplace_back(begin, end);
  }
}

TEST(Arena, ResetGivesTheSameMemoryAgain) {
  Arena arena("test");
  const auto kept = arena.take<double>(10);
  const auto mark = arena.mark();
  const auto* first = arena.take<double>(100).data();
  arena.reset(mark);
  EXPECT_EQ(arena.take<double>(100).data(), first);
  EXPECT_NE(kept.data(), first);
}

TEST(Arena, ScopesNestLikeAStack) {
  Arena arena("test");
  const auto* outer_tensor = arena.take<int>(8).data();
  const int* inner_tensor = nullptr;
  {
    const ArenaScope outer(arena);
    const auto* first = arena.take<int>(8).data();
    {
      const ArenaScope inner(arena);
      inner_tensor = arena.take<int>(8).data();
      EXPECT_NE(inner_tensor, first);
    }
    EXPECT_EQ(arena.take<int>(8).data(), inner_tensor) << "the inner scope gave it back";
  }
  EXPECT_NE(arena.take<int>(8).data(), outer_tensor)
      << "taken before the scopes: still held";
}

/// \brief A step that takes tensors of varying sizes, some larger than a chunk.
void step(Arena& arena) {
  const ArenaScope scope(arena);
  for (int layer = 0; layer < 4; ++layer) {
    const auto kept = arena.take<float>(1000 + layer, 7);
    const ArenaScope inner(arena);
    const auto large = arena.take<float>(1 << 19, 1 + layer % 2);
    const auto small = arena.take<double>(5);
    std::memset(static_cast<void*>(kept.data()), 0, kept.size() * sizeof(float));
    EXPECT_NE(static_cast<const void*>(large.data()),
              static_cast<const void*>(small.data()));
  }
}

TEST(Arena, TheSteadyStateAllocatesNothing) {
  Arena arena("test");
  step(arena);
  const std::size_t allocations = arena.allocations();
  const std::size_t capacity = arena.capacity();
  EXPECT_GT(allocations, 0U);
  for (int i = 0; i < 10; ++i) step(arena);
  EXPECT_EQ(arena.allocations(), allocations);
  EXPECT_EQ(arena.capacity(), capacity);
}

TEST(Arena, ChunksBecomeOneWhenAllIsGivenBack) {
  Arena arena("test");
  constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
  // Each step needs a little more than the one before, as rows at experts do.
  for (std::int64_t extra = 0; extra < 8; ++extra) {
    const ArenaScope scope(arena);
    for (int tensor = 0; tensor < 4; ++tensor) {
      arena.take<std::byte>(4 * kMebibyte + extra * 4096);
    }
  }
  EXPECT_LE(arena.capacity(), static_cast<std::size_t>(18 * kMebibyte)) << "16 MiB at once";
  EXPECT_LE(arena.allocations(), 5U) << "four pieces, then one";
}

constexpr std::int64_t kMebi = std::int64_t{1} << 20;

// While the first step grows, no chunk lies there that is too small for what comes.
TEST(Arena, EmptyChunksThatAreTooSmallGo) {
  Arena arena("test");
  arena.take<std::byte>(kMebi / 2);
  const auto mark = arena.mark();
  for (const std::int64_t size : {4, 8, 16, 12, 32}) {
    const ArenaScope scope(arena);
    arena.take<std::byte>(size * kMebi);
    EXPECT_LE(arena.capacity(),
              static_cast<std::size_t>((std::max<std::int64_t>(size, 16) + 2) * kMebi));
  }
  EXPECT_EQ(arena.mark().used, mark.used);
  EXPECT_LE(arena.capacity(), static_cast<std::size_t>(34 * kMebi));
}

TEST(Arena, ChunksThatHoldSomethingStay) {
  Arena arena("test");
  const auto kept = arena.take<std::byte>(4 * kMebi);
  std::memset(kept.data(), 7, kept.size());
  {
    const ArenaScope scope(arena);
    const auto second = arena.take<std::byte>(2 * kMebi);
    std::memset(second.data(), 8, second.size());
    const auto third = arena.take<std::byte>(8 * kMebi);
    std::memset(third.data(), 9, third.size());
    EXPECT_EQ(second(0), std::byte{8});
    EXPECT_EQ(second(2 * kMebi - 1), std::byte{8});
  }
  for (std::size_t i = 0; i < kept.size(); i += 4096) EXPECT_EQ(kept(i), std::byte{7});
}

/// Resident bytes of this process; 0 where the system does not tell.
std::int64_t resident_bytes() {
  std::int64_t all = 0;
  std::int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * 4096;
}

// A chunk of which a part is in use when it turns out too small: the rest of it takes no memory.
TEST(Arena, TheUnusedRestOfAChunkGoesBackToTheSystem) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own memory would be measured";
#endif
  if (resident_bytes() == 0) GTEST_SKIP() << "no /proc/self/statm";
  Arena arena("test");
  {
    const ArenaScope scope(arena);
    const auto all = arena.take<std::byte>(64 * kMebi);
    std::memset(all.data(), 1, all.size());
  }
  const auto small = arena.take<std::byte>(kMebi);
  std::memset(small.data(), 2, small.size());
  const std::int64_t before = resident_bytes();
  const auto large = arena.take<std::byte>(80 * kMebi);
  std::memset(large.data(), 3, large.size());
  EXPECT_LT(resident_bytes() - before, (80 - 60 + 4) * kMebi) << "80 taken, 60 given back";
  EXPECT_EQ(small(kMebi - 1), std::byte{2});
}

TEST(Arena, CapacityIsWhatTheChunksHold) {
  Arena arena("test");
  EXPECT_EQ(arena.capacity(), 0U);
  arena.take<std::byte>(1);
  EXPECT_EQ(arena.capacity(), std::size_t{1} << 20) << "one chunk of the smallest size";
  arena.take<std::byte>(std::int64_t{5} << 20);
  EXPECT_GE(arena.capacity(), std::size_t{6} << 20);
  EXPECT_EQ(arena.allocations(), 2U);
}

TEST(Arena, CapacityDoesNotDependOnWhereChunksLie) {
  std::vector<std::vector<char>> between;
  for (std::size_t i = 0; i < 16; ++i) {
    Arena arena("test");
    between.emplace_back(40 * i + 8);
    // Together exactly a chunk, which keeps a reserve for its alignment.
    arena.take<std::byte>(std::int64_t{1} << 19);
    arena.take<std::byte>(std::int64_t{1} << 19);
    EXPECT_EQ(arena.allocations(), 2U);
    EXPECT_EQ(arena.capacity(), std::size_t{2} << 20);
  }
}

}  // namespace
}  // namespace pleat
