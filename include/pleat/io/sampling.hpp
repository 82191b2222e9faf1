// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Which sample comes next, as pure functions of its number: nothing is
/// remembered, so a run continues anywhere and every mapping sees the same order.

#include <array>
#include <cstdint>
#include <vector>

#include "pleat/base/random.hpp"

namespace pleat::io {

/// \brief A random permutation of 0 .. size - 1, evaluated one element at a time.
///
/// The swap-or-not shuffle of Hoang, Morris and Rogaway, "An enciphering scheme based on
/// a card shuffle" (CRYPTO 2012): each round pairs x with K - x and swaps the pair or
/// not. It needs no table and works for any size, not only powers of two.
class KeyedPermutation {
 public:
  static constexpr int kMostBits = 48;

  /// \param size    at least 1, below 2^48
  /// \param stream  the purpose: streams of one seed are independent
  KeyedPermutation(std::int64_t size, std::uint64_t seed, std::uint64_t stream);
  std::int64_t size() const { return size_; }
  /// \brief The image of index, 0 <= index < size.
  std::int64_t operator()(std::int64_t index) const;

 private:
  std::int64_t size_;
  CounterRandom random_;
  int rounds_;
  std::array<std::int64_t, 6 * kMostBits> round_keys_;  // no heap: one is made for each sample
};

/// \brief Holds out a share of the samples for validation.
///
/// The samples, in file order, are cut into as many runs of nearly equal length as
/// samples are to be held out, and the seed picks one sample of each run. The held-out
/// samples are thus spread evenly over the file, their number is exact, and nothing is
/// stored.
class HeldOutSplit {
 public:
  /// \param share  of the samples to hold out, in [0, 1); rounded to whole samples
  HeldOutSplit(std::int64_t samples, double share, std::uint64_t seed);
  std::int64_t held_out() const { return held_out_; }
  std::int64_t training() const { return samples_ - held_out_; }
  /// \brief The sample that is number `index` of the held-out ones, in file order.
  std::int64_t held_out_sample(std::int64_t index) const;
  /// \brief The sample that is number `index` of the training ones, in file order.
  std::int64_t training_sample(std::int64_t index) const;
  /// \brief How many training samples lie before the sample.
  std::int64_t training_before(std::int64_t sample) const;

 private:
  std::int64_t run_begin(std::int64_t run) const;
  std::int64_t run_of(std::int64_t sample) const;

  std::int64_t samples_;
  std::int64_t held_out_;
  CounterRandom random_;
};

/// \brief Interleaves several sources by weight.
///
/// A binary tree splits the first n samples of the run between its two halves: round(n p)
/// and the rest, p being the left half's share of the weight in fixed point. Source and
/// position of any sample follow by walking down the tree, and after any number of
/// samples each source has had its share to within one sample per level of the tree.
class BlendOrder {
 public:
  /// \param weights  positive, one per source
  explicit BlendOrder(const std::vector<double>& weights);
  struct Place {
    std::size_t source;
    std::int64_t position;  ///< among the samples of that source
  };
  Place operator()(std::int64_t sample) const;

 private:
  std::vector<double> cumulative_;  ///< weight of all sources before each, then of all
};

}  // namespace pleat::io
