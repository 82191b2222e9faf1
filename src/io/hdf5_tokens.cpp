// SPDX-License-Identifier: Apache-2.0
// Samples that are rows of an HDF5 dataset.
#include <algorithm>
#include <optional>

#include "pleat/base/error.hpp"
#include "pleat/io/hdf5_rows.hpp"
#include "pleat/io/token_source.hpp"

namespace pleat::io {

namespace {

class Hdf5Source final : public TokenSource {
 public:
  Hdf5Source(const std::string& path, const DataConfig& config, std::int64_t sequence)
      : path_(path),
        sequence_(sequence),
        file_(Hdf5File::open_read(path)),
        tokens_(open_rows(file_, config.dataset)) {
    check_tokens();
    open_loss_mask(config.loss_mask);
    read_lengths(config.lengths);
  }

  const std::string& path() const override { return path_; }
  std::int64_t samples() const override { return tokens_.rows(); }

  void read(std::int64_t number, RawSample& sample) const override {
    tokens_.read(number, sample.tokens);
    sample.length = sequence_ + 1;
    if (!lengths_.empty()) sample.length = lengths_[static_cast<std::size_t>(number)];
    std::fill(sample.loss_mask_S.begin(), sample.loss_mask_S.end(), std::uint8_t{1});
    if (!loss_mask_.has_value()) return;
    std::vector<std::int64_t> mask(sample.loss_mask_S.size());
    loss_mask_->read(number, mask);
    std::transform(mask.begin(), mask.end(), sample.loss_mask_S.begin(),
                   [](std::int64_t value) { return value != 0; });
  }

  std::string description() const override {
    return fmt::format("hdf5 '{}' of {}: {} samples of {}{}{}", tokens_.name(),
                       tokens_.type_text(), samples(), sequence_,
                       loss_mask_.has_value() ? ", with loss mask" : "",
                       lengths_.empty() ? "" : ", with lengths");
  }

 private:
  void check_tokens() const {
    PLEAT_REQUIRE(tokens_.rows() > 0 && tokens_.width() > 0, InputError, "PL0502",
                  "dataset '{}' of '{}' is empty", tokens_.name(), path_);
    PLEAT_REQUIRE(
        tokens_.width() == sequence_ + 1, InputError, "PL0508",
        "the last dimension of dataset '{}' of '{}' is {}, but batch.sequence + 1 "
        "is {}\nHINT: set batch.sequence = {}, or cut the samples anew.",
        tokens_.name(), path_, tokens_.width(), sequence_ + 1, tokens_.width() - 1);
  }

  void open_loss_mask(const std::string& name) {
    if (name.empty()) return;
    loss_mask_.emplace(open_rows(file_, name));
    PLEAT_REQUIRE(
        loss_mask_->rows() == tokens_.rows() && loss_mask_->width() == sequence_,
        InputError, "PL0510",
        "the loss mask '{}' of '{}' is {} x {}, expected {} x {} (samples x "
        "batch.sequence)",
        name, path_, loss_mask_->rows(), loss_mask_->width(), tokens_.rows(), sequence_);
  }

  void read_lengths(const std::string& name) {
    if (name.empty()) return;
    const Hdf5Dataset dataset = open_integers(file_, name);
    PLEAT_REQUIRE(dataset.count() == tokens_.rows(), InputError, "PL0510",
                  "the lengths '{}' of '{}' are {}, expected {}, one per sample", name,
                  path_, dataset.count(), tokens_.rows());
    lengths_ = dataset.read_all<std::int64_t>();
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      PLEAT_REQUIRE(lengths_[i] >= 0 && lengths_[i] <= sequence_ + 1, InputError,
                    "PL0510",
                    "length {} of sample {} in '{}' of '{}' is not within 0 to {}",
                    lengths_[i], i, name, path_, sequence_ + 1);
    }
  }

  std::string path_;
  std::int64_t sequence_;
  Hdf5File file_;
  Hdf5Rows tokens_;
  std::optional<Hdf5Rows> loss_mask_;
  std::vector<std::int64_t> lengths_;
};

/// Takes turns in HDF5 with a checkpoint that is written in the background.
class LockedSource final : public TokenSource {
 public:
  explicit LockedSource(std::unique_ptr<TokenSource> source) : source_(std::move(source)) {}
  ~LockedSource() override {
    const Hdf5Lock lock;
    source_.reset();
  }
  LockedSource(const LockedSource&) = delete;
  LockedSource& operator=(const LockedSource&) = delete;

  const std::string& path() const override { return source_->path(); }
  std::int64_t samples() const override { return source_->samples(); }
  void read(std::int64_t number, RawSample& sample) const override {
    const Hdf5Lock lock;
    source_->read(number, sample);
  }
  std::string description() const override {
    const Hdf5Lock lock;
    return source_->description();
  }

 private:
  std::unique_ptr<TokenSource> source_;
};

}  // namespace

std::unique_ptr<TokenSource> open_hdf5_source(const std::string& path,
                                              const DataConfig& config,
                                              std::int64_t sequence) {
  const Hdf5Lock lock;
  return std::make_unique<LockedSource>(
      std::make_unique<Hdf5Source>(path, config, sequence));
}

}  // namespace pleat::io
