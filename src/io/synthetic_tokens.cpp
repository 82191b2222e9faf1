// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "pleat/base/random.hpp"
#include "pleat/io/token_source.hpp"

namespace pleat::io {

namespace {

class SyntheticSource final : public TokenSource {
 public:
  SyntheticSource(std::int64_t samples, std::int64_t sequence, std::int64_t vocab,
                  std::uint64_t seed)
      : samples_(samples),
        sequence_(sequence),
        vocab_(static_cast<std::uint64_t>(vocab)),
        walk_(seed, hash_name("data.synthetic.walk")),
        successor_(seed, hash_name("data.synthetic.successor")) {}

  const std::string& path() const override { return path_; }
  std::int64_t samples() const override { return samples_; }

  void read(std::int64_t number, RawSample& sample) const override {
    const auto length = static_cast<std::uint64_t>(sequence_ + 1);
    const std::uint64_t first = static_cast<std::uint64_t>(number) * length;
    std::uint64_t token = 0;
    for (std::uint64_t s = 0; s < length; ++s) {
      const CounterRandom::Block word = walk_.bits(first + s);
      const bool follows = s > 0 && word.word[0] < kSyntheticOrder * 0x1.0p32;
      const std::uint64_t bits = (std::uint64_t{word.word[2]} << 32) | word.word[1];
      token = (follows ? successor_.bits64(token) : bits) % vocab_;
      sample.tokens[s] = static_cast<std::int64_t>(token);
    }
    std::fill(sample.loss_mask_S.begin(), sample.loss_mask_S.end(), std::uint8_t{1});
    sample.length = sequence_ + 1;
  }

  std::string description() const override {
    return fmt::format("synthetic: {} samples of {}", samples_, sequence_);
  }

 private:
  std::string path_ = "synthetic";
  std::int64_t samples_;
  std::int64_t sequence_;
  std::uint64_t vocab_;
  CounterRandom walk_;
  CounterRandom successor_;
};

}  // namespace

std::unique_ptr<TokenSource> make_synthetic_source(std::int64_t samples,
                                                   std::int64_t sequence,
                                                   std::int64_t vocab,
                                                   std::uint64_t seed) {
  return std::make_unique<SyntheticSource>(samples, sequence, vocab, seed);
}

}  // namespace pleat::io
