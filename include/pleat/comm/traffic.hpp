// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief How much a rank sends, by kind of exchange.

#include <array>
#include <cstddef>
#include <cstdint>

namespace pleat::comm {

enum class Exchange : std::size_t {
  kAllReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kSend,
  kCount
};

inline constexpr std::size_t kExchanges = static_cast<std::size_t>(Exchange::kCount);

constexpr const char* exchange_name(Exchange exchange) {
  constexpr std::array<const char*, kExchanges> kNames{
      "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "send"};
  return kNames[static_cast<std::size_t>(exchange)];
}

/// \brief Calls, and bytes that leave this rank, as the bandwidth-optimal algorithm of P
/// members would send them (docs/dispatcher.md): n bytes per member for
///
///     all_gather      (P - 1) n            reduce_scatter  (P - 1) n   (n: of one part)
///     all_reduce      2 (P - 1) / P n      broadcast       (P - 1) / P n
///     all_to_all      what goes to others  send            n
///
/// Of unlike parts, a member's all_gather is (P - 1) times its own part, its reduce_scatter
/// the sum of the other members' parts. Receives and barriers are not counted; a group of
/// one sends nothing and is not counted.
struct Traffic {
  struct Entry {
    std::int64_t calls = 0;
    double bytes = 0.0;
  };
  std::array<Entry, kExchanges> entries{};

  const Entry& of(Exchange exchange) const {
    return entries[static_cast<std::size_t>(exchange)];
  }
  Traffic& operator+=(const Traffic& other) {
    for (std::size_t e = 0; e < kExchanges; ++e) {
      entries[e].calls += other.entries[e].calls;
      entries[e].bytes += other.entries[e].bytes;
    }
    return *this;
  }
};

}  // namespace pleat::comm
