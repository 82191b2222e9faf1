// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/sampling.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "pleat/base/error.hpp"

namespace pleat::io {

namespace {

constexpr std::uint64_t kHeldOutStream = hash_name("data.split");

// Above the counters that the rounds use, see KeyedPermutation::operator().
constexpr std::uint64_t kRoundKeyCounters = std::uint64_t{1} << 63;
constexpr int kRoundShift = KeyedPermutation::kMostBits;

/// floor(a b / c) without overflow.
std::int64_t multiply_divide(std::int64_t a, std::int64_t b, std::int64_t c) {
  return static_cast<std::int64_t>(static_cast<__int128>(a) * b / c);
}

}  // namespace

KeyedPermutation::KeyedPermutation(std::int64_t size, std::uint64_t seed,
                                   std::uint64_t stream)
    : size_(size), random_(seed, stream) {
  PLEAT_ASSERT(size >= 1 && size < (std::int64_t{1} << kRoundShift),
               "a permutation of {} elements", size);
  // 6 log2(size) rounds mix well in practice; the floor serves the very small sizes.
  const int bits = std::bit_width(static_cast<std::uint64_t>(size));
  rounds_ = std::max(24, 6 * bits);
  for (int round = 0; round < rounds_; ++round) {
    const std::uint64_t word =
        random_.bits64(kRoundKeyCounters + static_cast<std::uint64_t>(round));
    round_keys_[static_cast<std::size_t>(round)] =
        static_cast<std::int64_t>(word % static_cast<std::uint64_t>(size));
  }
}

std::int64_t KeyedPermutation::operator()(std::int64_t index) const {
  PLEAT_ASSERT(index >= 0 && index < size_, "index {} of {}", index, size_);
  std::int64_t x = index;
  for (std::size_t round = 0; round < static_cast<std::size_t>(rounds_); ++round) {
    std::int64_t partner = round_keys_[round] - x;
    if (partner < 0) partner += size_;
    // Both members of a pair ask for the same bit, so each round is its own inverse.
    const auto pair = static_cast<std::uint64_t>(std::max(x, partner));
    const std::uint64_t counter =
        (static_cast<std::uint64_t>(round) << kRoundShift) | pair;
    if ((random_.bits(counter).word[0] & 1U) != 0) x = partner;
  }
  return x;
}

HeldOutSplit::HeldOutSplit(std::int64_t samples, double share, std::uint64_t seed)
    : samples_(samples),
      held_out_(std::llround(share * static_cast<double>(samples))),
      random_(seed, kHeldOutStream) {
  PLEAT_ASSERT(held_out_ >= 0 && held_out_ <= samples, "share {} of {}", share, samples);
}

std::int64_t HeldOutSplit::run_begin(std::int64_t run) const {
  return multiply_divide(run, samples_, held_out_);
}

std::int64_t HeldOutSplit::run_of(std::int64_t sample) const {
  // The last run that begins at or before the sample.
  return multiply_divide(sample + 1, held_out_, samples_) -
         ((static_cast<__int128>(sample + 1) * held_out_) % samples_ == 0 ? 1 : 0);
}

std::int64_t HeldOutSplit::held_out_sample(std::int64_t index) const {
  PLEAT_ASSERT(index >= 0 && index < held_out_, "sample {} of {}", index, held_out_);
  const std::int64_t begin = run_begin(index);
  const auto length = static_cast<std::uint64_t>(run_begin(index + 1) - begin);
  const std::uint64_t word = random_.bits64(static_cast<std::uint64_t>(index));
  return begin + static_cast<std::int64_t>(word % length);
}

std::int64_t HeldOutSplit::training_before(std::int64_t sample) const {
  if (held_out_ == 0) return sample;
  if (sample == samples_) return training();
  const std::int64_t run = run_of(sample);
  return sample - run - (held_out_sample(run) < sample ? 1 : 0);
}

std::int64_t HeldOutSplit::training_sample(std::int64_t index) const {
  PLEAT_ASSERT(index >= 0 && index < training(), "sample {} of {}", index, training());
  // The smallest sample with index + 1 training samples up to and including it.
  std::int64_t low = index;
  std::int64_t high = index + held_out_;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (training_before(middle + 1) > index) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

BlendOrder::BlendOrder(const std::vector<double>& weights) : cumulative_{0.0} {
  PLEAT_ASSERT(!weights.empty(), "a blend of nothing");
  for (const double weight : weights) cumulative_.push_back(cumulative_.back() + weight);
}

BlendOrder::Place BlendOrder::operator()(std::int64_t sample) const {
  constexpr int kFractionBits = 62;
  constexpr __int128 kHalf = __int128{1} << (kFractionBits - 1);
  std::size_t begin = 0;
  std::size_t end = cumulative_.size() - 1;
  std::int64_t position = sample;
  while (end - begin > 1) {
    const std::size_t middle = begin + (end - begin) / 2;
    const double share = (cumulative_[middle] - cumulative_[begin]) /
                         (cumulative_[end] - cumulative_[begin]);
    const auto fixed_share = static_cast<std::int64_t>(std::ldexp(share, kFractionBits));
    const auto left_count = [fixed_share](std::int64_t count) {
      return static_cast<std::int64_t>((__int128{count} * fixed_share + kHalf) >>
                                       kFractionBits);
    };
    const std::int64_t before = left_count(position);
    if (left_count(position + 1) > before) {
      position = before;
      end = middle;
    } else {
      position -= before;
      begin = middle;
    }
  }
  return {begin, position};
}

}  // namespace pleat::io
