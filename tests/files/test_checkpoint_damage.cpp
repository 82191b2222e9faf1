// SPDX-License-Identifier: Apache-2.0
#include "files/support.hpp"

namespace pleat::io {
namespace {

using test::Dice;
using test::filled;
using test::small_layout;
using test::values_of;

/// A checkpoint of the small model, its bytes, and what must be read from it.
class CheckpointDamage : public testing::Test {
 protected:
  void SetUp() override {
    info_ = test::unusual_info();
    weights_ = filled<double>(layout_, 1);
    moments_ = filled<double>(layout_, 2);
    path_ = save_checkpoint<double>(folder_.path(), info_, *layout_, weights_, moments_,
                                    moments_, MPI_COMM_SELF);
    bytes_ = test::read_file(path_);
  }

  /// True when the damage is reported; fails the test when wrong contents are read
  /// instead.
  bool is_detected(const std::string& bytes) {
    test::write_file(path_, bytes);
    const tensor::FlatTensors<double> w(layout_, "w");
    const tensor::FlatTensors<double> m(layout_, "m");
    const tensor::FlatTensors<double> v(layout_, "v");
    CheckpointInfo info;
    try {
      info = load_checkpoint<double>(path_, *layout_, w, m, v);
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(path_));
      return true;
    }
    EXPECT_EQ(values_of(w), values_of(weights_));
    EXPECT_EQ(values_of(m), values_of(moments_));
    EXPECT_EQ(values_of(v), values_of(moments_));
    EXPECT_EQ(info.step, info_.step);
    EXPECT_EQ(info.next_sample, info_.next_sample);
    EXPECT_EQ(info.deck, info_.deck);
    EXPECT_EQ(info.model.rope_theta, info_.model.rope_theta);
    EXPECT_EQ(info.model.moe_layer, info_.model.moe_layer);
    return false;
  }

  test::TemporaryFolder folder_;
  std::shared_ptr<const tensor::ParameterLayout> layout_ = small_layout();
  CheckpointInfo info_;
  tensor::FlatTensors<double> weights_;
  tensor::FlatTensors<double> moments_;
  std::string path_;
  std::string bytes_;
};

TEST_F(CheckpointDamage, TruncationIsDetectedEverywhere) {
  ASSERT_FALSE(is_detected(bytes_));
  for (std::size_t length = 0; length < bytes_.size();
       length += 1 + bytes_.size() / 500) {
    EXPECT_TRUE(is_detected(bytes_.substr(0, length))) << length;
  }
  EXPECT_TRUE(is_detected(bytes_.substr(0, bytes_.size() - 1)));
}

// A flip is either reported, or lies where nothing is stored and changes nothing.
TEST_F(CheckpointDamage, FlippedBitsAreDetectedOrHarmless) {
  constexpr int kFlips = 1500;
  Dice dice(2024);
  int detected = 0;
  for (int flip = 0; flip < kFlips; ++flip) {
    std::string bytes = bytes_;
    const std::size_t place = dice.below(bytes.size());
    bytes[place] = static_cast<char>(bytes[place] ^ (1 << dice.below(8)));
    detected += is_detected(bytes) ? 1 : 0;
    if (HasFailure()) FAIL() << "at byte " << place;
  }
  RecordProperty("detected", detected);
  EXPECT_GT(detected, kFlips / 4);
}

TEST_F(CheckpointDamage, EveryBitOfTheSuperblock) {
  for (std::size_t bit = 0; bit < 48 * 8; ++bit) {
    std::string bytes = bytes_;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_TRUE(is_detected(bytes)) << "bit " << bit;
  }
}

TEST_F(CheckpointDamage, OverwrittenStretches) {
  Dice dice(7);
  for (int i = 0; i < 200; ++i) {
    std::string bytes = bytes_;
    const std::size_t begin = dice.below(bytes.size());
    const std::size_t end = std::min(bytes.size(), begin + 1 + dice.below(512));
    for (std::size_t place = begin; place < end; ++place) {
      bytes[place] = static_cast<char>(dice.below(256));
    }
    is_detected(bytes);
    if (HasFailure()) FAIL() << "from byte " << begin;
  }
}

}  // namespace
}  // namespace pleat::io
