// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/token_data.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <sys/stat.h>

#include "pleat/base/error.hpp"
#include "pleat/io/megatron.hpp"
#include "pleat/io/sampling.hpp"
#include "pleat/io/token_source.hpp"

namespace pleat::io {

namespace {

constexpr std::uint64_t kShuffleStream = hash_name("data.shuffle");

/// Sources up to this size are read once when they are opened, so that a bad token is
/// reported before the run and not in the middle of it.
constexpr std::int64_t kCheckedTokens = std::int64_t{1} << 26;

/// Tokens at the beginning of a source, and as many at its end, that tell it from others.
constexpr std::int64_t kIdentityTokens = std::int64_t{1} << 16;

/// Samples drawn together: they are permuted among themselves, epoch by epoch.
struct Group {
  std::int64_t first;  ///< of the training samples of all sources
  std::int64_t samples;
  std::uint64_t stream;
};

class SampledTokenData final : public TokenData {
 public:
  SampledTokenData(std::vector<std::unique_ptr<TokenSource>> sources,
                   const DataConfig& config, std::int64_t sequence, std::int64_t vocab,
                   std::uint64_t seed);
  std::int64_t training_samples() const override { return split_.training(); }
  std::int64_t validation_samples() const override { return split_.held_out(); }
  void training_batch(std::int64_t first, const HostBatch& batch) const override;
  void validation_batch(std::int64_t first, const HostBatch& batch) const override;
  std::string description() const override;
  std::string identity() const override;

 private:
  void make_groups(const std::vector<double>& weights);
  std::int64_t training_position(std::int64_t number) const;
  void read_checked(std::size_t source, std::int64_t number, RawSample& sample) const;
  void check_small_sources() const;
  bool is_for_training(std::int64_t sample) const {
    return split_.training_before(sample + 1) > split_.training_before(sample);
  }
  void fill(std::int64_t sample, std::size_t row, const HostBatch& batch,
            RawSample& scratch) const;
  void check_batch(const HostBatch& batch) const;

  std::vector<std::unique_ptr<TokenSource>> sources_;
  std::vector<std::int64_t> starts_;  ///< first sample of each source, then all samples
  std::int64_t sequence_;
  std::int64_t vocab_;
  std::uint64_t seed_;
  bool shuffle_;
  HeldOutSplit split_;
  std::vector<Group> groups_;
  BlendOrder blend_;
};

/// The thread's sample to read into, for sequences of that length: a step takes no memory.
RawSample& reused_sample(std::int64_t sequence) {
  static thread_local RawSample sample(sequence);
  if (std::ssize(sample.loss_mask_S) != sequence) sample = RawSample(sequence);
  return sample;
}

/// A position counts where its mask says so and a real token follows.
bool carries_loss(const RawSample& sample, std::int64_t position) {
  return position + 1 < sample.length &&
         sample.loss_mask_S[static_cast<std::size_t>(position)] != 0;
}

bool has_loss(const RawSample& sample) {
  for (std::int64_t s = 0; s + 1 < sample.length; ++s) {
    if (carries_loss(sample, s)) return true;
  }
  return false;
}

std::vector<std::int64_t> count_samples(
    const std::vector<std::unique_ptr<TokenSource>>& sources) {
  std::vector<std::int64_t> starts{0};
  for (const auto& source : sources) starts.push_back(starts.back() + source->samples());
  return starts;
}

SampledTokenData::SampledTokenData(std::vector<std::unique_ptr<TokenSource>> sources,
                                   const DataConfig& config, std::int64_t sequence,
                                   std::int64_t vocab, std::uint64_t seed)
    : sources_(std::move(sources)),
      starts_(count_samples(sources_)),
      sequence_(sequence),
      vocab_(vocab),
      seed_(seed),
      shuffle_(config.shuffle),
      split_(starts_.back(), config.split, seed),
      blend_(config.weights.empty() ? std::vector<double>{1.0} : config.weights) {
  PLEAT_REQUIRE(split_.training() > 0, InputError, "PL0512",
                "data.split = {} holds out all {} samples and leaves none to train on\n"
                "HINT: lower data.split, shorten batch.sequence or give more data.",
                config.split, starts_.back());
  PLEAT_REQUIRE(
      config.split == 0.0 || split_.held_out() > 0, InputError, "PL0512",
      "data.split = {} of {} samples holds out none\nHINT: raise data.split to at "
      "least {:.3g}, shorten batch.sequence or give more data.",
      config.split, starts_.back(), 1.0 / static_cast<double>(starts_.back()));
  make_groups(config.weights);
  check_small_sources();
}

/// Without weights all sources are one group, so each sample comes once in an epoch.
void SampledTokenData::make_groups(const std::vector<double>& weights) {
  if (weights.empty()) {
    groups_.push_back({0, split_.training(), kShuffleStream});
    return;
  }
  for (std::size_t s = 0; s < sources_.size(); ++s) {
    const std::int64_t first = split_.training_before(starts_[s]);
    const std::int64_t samples = split_.training_before(starts_[s + 1]) - first;
    PLEAT_REQUIRE(
        samples > 0, InputError, "PL0512",
        "data.split leaves no sample of '{}' to train on\nHINT: lower data.split or "
        "remove the file from data.path.",
        sources_[s]->path());
    const std::string name = fmt::format("data.shuffle.{}", s);
    groups_.push_back({first, samples, hash_name(name)});
  }
}

void SampledTokenData::check_small_sources() const {
  RawSample sample(sequence_);
  bool any_loss = false;
  for (std::size_t s = 0; s < sources_.size(); ++s) {
    const std::int64_t samples = sources_[s]->samples();
    if (samples > kCheckedTokens / (sequence_ + 1)) {
      any_loss = true;  // nobody has looked
      continue;
    }
    for (std::int64_t i = 0; i < samples; ++i) {
      read_checked(s, i, sample);
      any_loss = any_loss || (has_loss(sample) && is_for_training(starts_[s] + i));
    }
  }
  PLEAT_REQUIRE(any_loss, InputError, "PL0502",
                "no token of the {} samples to train on carries loss\n"
                "HINT: a token counts where data.loss_mask is 1 and, within data.lengths, "
                "another one follows.",
                split_.training());
}

void SampledTokenData::read_checked(std::size_t source, std::int64_t number,
                                    RawSample& sample) const {
  const TokenSource& from = *sources_[source];
  from.read(number, sample);
  for (std::int64_t s = 0; s < sample.length; ++s) {
    const std::int64_t token = sample.tokens[static_cast<std::size_t>(s)];
    PLEAT_REQUIRE(
        token >= 0 && token < vocab_, InputError, "PL0504",
        "'{}': sample {} has token {} at position {}, outside 0 to {} (model.vocab "
        "= {})\nHINT: the tokens were made for another vocabulary.",
        from.path(), number, token, s, vocab_ - 1, vocab_);
  }
}

/// Place of a sample of the run among the training samples in file order.
std::int64_t SampledTokenData::training_position(std::int64_t number) const {
  const BlendOrder::Place place = blend_(number);
  const Group& group = groups_[place.source];
  const std::int64_t epoch = place.position / group.samples;
  std::int64_t position = place.position % group.samples;
  if (shuffle_) {
    // Each epoch has its own stream: the name's hash moved on by a large odd step.
    const std::uint64_t stream =
        group.stream + static_cast<std::uint64_t>(epoch) * 0x9E3779B97F4A7C15ULL;
    position = KeyedPermutation(group.samples, seed_, stream)(position);
  }
  return group.first + position;
}

void SampledTokenData::fill(std::int64_t sample, std::size_t row, const HostBatch& batch,
                            RawSample& scratch) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), sample);
  const auto source = static_cast<std::size_t>(after - starts_.begin()) - 1;
  read_checked(source, sample - starts_[source], scratch);
  const auto token = [&](std::int64_t s) {
    const bool real = s < scratch.length;
    return real ? static_cast<std::int32_t>(scratch.tokens[static_cast<std::size_t>(s)])
                : 0;
  };
  for (std::int64_t s = 0; s < sequence_; ++s) {
    batch.tokens_BS(row, s) = token(s);
    batch.labels_BS(row, s) = token(s + 1);
    batch.real_BS(row, s) = s < scratch.length;
    batch.loss_mask_BS(row, s) = carries_loss(scratch, s);
  }
}

void SampledTokenData::check_batch(const HostBatch& batch) const {
  const std::size_t rows = batch.tokens_BS.extent(0);
  const auto sequence = static_cast<std::size_t>(sequence_);
  const auto fits = [&](const auto& view) {
    return view.extent(0) == rows && view.extent(1) == sequence;
  };
  PLEAT_ASSERT(fits(batch.tokens_BS) && fits(batch.labels_BS) &&
                   fits(batch.loss_mask_BS) && fits(batch.real_BS),
               "the views of a batch must all be [B, {}]", sequence_);
}

void SampledTokenData::training_batch(std::int64_t first, const HostBatch& batch) const {
  check_batch(batch);
  RawSample& scratch = reused_sample(sequence_);
  for (std::size_t row = 0; row < batch.tokens_BS.extent(0); ++row) {
    const std::int64_t position =
        training_position(first + static_cast<std::int64_t>(row));
    fill(split_.training_sample(position), row, batch, scratch);
  }
}

void SampledTokenData::validation_batch(std::int64_t first,
                                        const HostBatch& batch) const {
  check_batch(batch);
  PLEAT_ASSERT(split_.held_out() > 0, "no sample is held out");
  RawSample scratch(sequence_);
  for (std::size_t row = 0; row < batch.tokens_BS.extent(0); ++row) {
    const std::int64_t number =
        (first + static_cast<std::int64_t>(row)) % split_.held_out();
    fill(split_.held_out_sample(number), row, batch, scratch);
  }
}

std::string SampledTokenData::description() const {
  std::string text;
  for (const auto& source : sources_) {
    text += fmt::format("'{}': {}\n", source->path(), source->description());
  }
  text +=
      fmt::format("{} samples to train on ({} tokens), {}; {} held out for validation",
                  split_.training(), split_.training() * sequence_,
                  shuffle_ ? "shuffled" : "in file order", split_.held_out());
  return text;
}

/// Of samples first to last - 1, all that is trained on, continuing an earlier hash.
std::uint64_t hash_samples(const TokenSource& source, std::int64_t sequence,
                           std::int64_t first, std::int64_t last, std::uint64_t hash) {
  RawSample sample(sequence);
  const auto mix = [&](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3ULL;  // as FNV-1a
    hash ^= hash >> 32;
  };
  for (std::int64_t number = first; number < last; ++number) {
    source.read(number, sample);
    mix(sample.length);
    for (std::int64_t s = 0; s < sample.length; ++s)
      mix(sample.tokens[static_cast<std::size_t>(s)]);
    for (const std::uint8_t carries_loss : sample.loss_mask_S) mix(carries_loss);
  }
  return hash;
}

std::string SampledTokenData::identity() const {
  const std::int64_t most = std::max<std::int64_t>(1, kIdentityTokens / (sequence_ + 1));
  std::string text;
  for (const auto& source : sources_) {
    const std::int64_t samples = source->samples();
    const std::int64_t head = std::min(most, samples);
    const std::int64_t tail = std::max(head, samples - most);
    std::uint64_t hash = hash_samples(*source, sequence_, 0, head, hash_name("data"));
    hash = hash_samples(*source, sequence_, tail, samples, hash);
    text += fmt::format("{}{} samples, hash {:016x}", text.empty() ? "" : "\n", samples,
                        hash);
  }
  return text;
}

std::unique_ptr<TokenSource> open_source(const std::string& path,
                                         const DataConfig& config,
                                         std::int64_t sequence) {
  switch (config.format) {
    case DataFormat::kText:
      return cut_stream(open_text_stream(path, *make_tokenizer(config.tokenizer)),
                        sequence);
    case DataFormat::kMegatron:
      return cut_stream(open_megatron_stream(path), sequence);
    case DataFormat::kHdf5:
      return open_hdf5_source(path, config, sequence);
    case DataFormat::kSynthetic:
      break;
  }
  PLEAT_ASSERT(false, "no source for this format");
  return nullptr;
}

/// One name for a file, however it is spelt: a Megatron pair by either end or none, any path
/// through links, hard ones too.
std::string file_identity(const std::string& path, DataFormat format) {
  const std::string file =
      format == DataFormat::kMegatron ? MegatronPaths(path).bin : path;
  struct stat status {};
  const bool known = stat(file.c_str(), &status) == 0;
  // What is not there is reported when it is opened.
  return known ? fmt::format("{}:{}", status.st_dev, status.st_ino) : file;
}

/// A second copy would put the held-out samples of the first one into the training.
void require_different_files(const DataConfig& config) {
  std::map<std::string, std::string> seen;
  for (const std::string& path : config.paths) {
    const auto [first, is_new] = seen.emplace(file_identity(path, config.format), path);
    PLEAT_REQUIRE(is_new, InputError, "PL0514",
                  "data.path names the same data twice, as '{}' and as '{}'\n"
                  "HINT: give it a larger share with data.weights.",
                  first->second, path);
  }
}

void check_config(const DataConfig& config) {
  const bool synthetic = config.format == DataFormat::kSynthetic;
  PLEAT_REQUIRE(synthetic == config.paths.empty(), InputError, "PL0514", "{}",
                synthetic ? "synthetic data is made from the seed and has no data.path"
                          : "data.path names no file to train on");
  PLEAT_REQUIRE(!synthetic || config.synthetic_samples > 0, InputError, "PL0514",
                "synthetic data needs at least one sample, not {}",
                config.synthetic_samples);
  require_different_files(config);
  const std::size_t expected = std::max<std::size_t>(config.paths.size(), 1);
  PLEAT_REQUIRE(config.weights.empty() || config.weights.size() == expected, InputError,
                "PL0511",
                "data.weights has {} entries for {} paths\nHINT: one per path, or "
                "none to take every sample once in an epoch.",
                config.weights.size(), config.paths.size());
  for (const double weight : config.weights) {
    PLEAT_REQUIRE(
        std::isfinite(weight) && weight > 0.0, InputError, "PL0511",
        "data.weights has {}, expected positive numbers\nHINT: leave a path out "
        "instead of giving it no weight.",
        weight);
  }
  PLEAT_REQUIRE(config.split >= 0.0 && config.split < 1.0, InputError, "PL0512",
                "data.split = {} is not a share in [0, 1)", config.split);
}

}  // namespace

std::unique_ptr<TokenData> open_token_data(const DataConfig& config,
                                           std::int64_t sequence, std::int64_t vocab,
                                           std::uint64_t seed) {
  PLEAT_ASSERT(sequence > 0 && vocab > 0 && vocab <= (std::int64_t{1} << 31),
               "sequence {} and vocabulary {}", sequence, vocab);
  check_config(config);
  std::vector<std::unique_ptr<TokenSource>> sources;
  if (config.format == DataFormat::kSynthetic) {
    sources.push_back(
        make_synthetic_source(config.synthetic_samples, sequence, vocab, seed));
  }
  for (const std::string& path : config.paths) {
    sources.push_back(open_source(path, config, sequence));
  }
  return std::make_unique<SampledTokenData>(std::move(sources), config, sequence, vocab,
                                            seed);
}

}  // namespace pleat::io
