// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Counter-based random numbers: the value at an index depends on (seed, stream,
/// index) alone, so it is the same on every mapping and after every restart.
///
/// Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
/// 1, 2, 3" (SC 2011).

#include <array>
#include <cstdint>
#include <string_view>

#include <Kokkos_Core.hpp>

namespace pleat {

/// \brief FNV-1a, 64 bits: turns a parameter's name into its stream number.
constexpr std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

/// \brief The stream of random numbers named by (seed, stream).
class CounterRandom {
 public:
  KOKKOS_FUNCTION CounterRandom(std::uint64_t seed, std::uint64_t stream)
      : seed_(seed), stream_(stream) {}

  struct Block {
    std::uint32_t word[4];
  };

  /// \brief 128 random bits for the index.
  KOKKOS_FUNCTION Block bits(std::uint64_t index) const {
    Block c{{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
             static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)}};
    std::uint32_t key0 = static_cast<std::uint32_t>(seed_);
    std::uint32_t key1 = static_cast<std::uint32_t>(seed_ >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c.word[0];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c.word[2];
      c = Block{{static_cast<std::uint32_t>(p1 >> 32) ^ c.word[1] ^ key0,
                 static_cast<std::uint32_t>(p1),
                 static_cast<std::uint32_t>(p0 >> 32) ^ c.word[3] ^ key1,
                 static_cast<std::uint32_t>(p0)}};
      key0 += 0x9E3779B9U;
      key1 += 0xBB67AE85U;
    }
    return c;
  }

  /// \brief 64 random bits for the index.
  KOKKOS_FUNCTION std::uint64_t bits64(std::uint64_t index) const {
    const Block b = bits(index);
    return (std::uint64_t{b.word[1]} << 32) | b.word[0];
  }

  /// \brief Uniform in (0, 1), 53 bits.
  KOKKOS_FUNCTION double uniform(std::uint64_t index) const {
    return to_unit(bits64(index));
  }

  /// \brief Standard normal (Box and Muller).
  KOKKOS_FUNCTION double normal(std::uint64_t index) const {
    const Block b = bits(index);
    const double u = to_unit((std::uint64_t{b.word[1]} << 32) | b.word[0]);
    const double v = to_unit((std::uint64_t{b.word[3]} << 32) | b.word[2]);
    return Kokkos::sqrt(-2.0 * Kokkos::log(u)) * Kokkos::cos(6.283185307179586476925 * v);
  }

 private:
  KOKKOS_FUNCTION static double to_unit(std::uint64_t bits) {
    return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53;
  }

  std::uint64_t seed_;
  std::uint64_t stream_;
};

}  // namespace pleat
