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
    path_ = test::save_checkpoint<double>(folder_.path(), info_, *layout_,
                                          {weights_, moments_, moments_});
    bytes_ = test::read_file(path_);
  }

  /// True when both readers report the damage; fails the test when wrong contents are read
  /// instead. The collective one asks HDF5 for the tables alone, so it may see less.
  bool is_detected(const std::string& bytes) {
    test::write_file(path_, bytes);
    const bool by_loader = is_reported([&] { read_with_loader(); });
    const bool by_reader = is_reported([&] { read_with_reader(); });
    return by_loader && by_reader;
  }

 private:
  bool is_reported(const std::function<void()>& read) {
    try {
      read();
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(path_));
      return true;
    }
    return false;
  }

  void read_with_loader() {
    const tensor::FlatTensors<double> w(layout_, "w");
    const tensor::FlatTensors<double> m(layout_, "m");
    const tensor::FlatTensors<double> v(layout_, "v");
    expect_info(test::load_checkpoint<double>(path_, *layout_, {w, m, v}));
    EXPECT_EQ(values_of(w), values_of(weights_));
    EXPECT_EQ(values_of(m), values_of(moments_));
    EXPECT_EQ(values_of(v), values_of(moments_));
  }

  void read_with_reader() {
    const CheckpointReader reader(path_);
    expect_info(reader.info());
    for (const TensorGroup group : test::all_groups()) {
      check_checkpoint_tensors(reader, group, *layout_);
      const auto& expected = group == TensorGroup::kParameters ? weights_ : moments_;
      for (const tensor::ParameterSpec& parameter : layout_->parameters()) {
        const auto flat = expected.flat(parameter);
        std::vector<double> values(flat.size());
        reader.read<double>(group, parameter, values);
        EXPECT_TRUE(std::equal(values.begin(), values.end(), flat.data())) << parameter.name;
      }
    }
  }

  void expect_info(const CheckpointInfo& info) {
    EXPECT_EQ(info.step, info_.step);
    EXPECT_EQ(info.next_sample, info_.next_sample);
    EXPECT_EQ(info.deck, info_.deck);
    EXPECT_EQ(info.history, info_.history);
    EXPECT_EQ(info.recent_losses, info_.recent_losses);
    EXPECT_EQ(info.data_identity, info_.data_identity);
    EXPECT_EQ(info.model.rope_theta, info_.model.rope_theta);
    EXPECT_EQ(info.model.moe_layer, info_.model.moe_layer);
  }

 protected:
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
       length += 1 + bytes_.size() / 150) {
    EXPECT_TRUE(is_detected(bytes_.substr(0, length))) << length;
  }
  EXPECT_TRUE(is_detected(bytes_.substr(0, bytes_.size() - 1)));
}

// A flip is either reported, or lies where nothing is stored and changes nothing.
TEST_F(CheckpointDamage, FlippedBitsAreDetectedOrHarmless) {
  constexpr int kFlips = 1200;
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

/// Where the elements of each tensor lie.
std::vector<tensor::Range> places_of_elements(const std::string& path) {
  std::vector<tensor::Range> places;
  const CheckpointReader reader(path);
  for (const auto& [name, stored] : reader.tensors()) {
    places.push_back({stored.offset, stored.offset + stored.bytes()});
  }
  return places;
}

TEST_F(CheckpointDamage, EveryFlippedBitOfElementsIsDetected) {
  Dice dice(11);
  for (const tensor::Range& place : places_of_elements(path_)) {
    for (int flip = 0; flip < 10; ++flip) {
      std::string bytes = bytes_;
      const std::size_t byte =
          static_cast<std::size_t>(place.begin) +
          dice.below(static_cast<std::uint64_t>(place.size()));
      bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << dice.below(8)));
      EXPECT_TRUE(is_detected(bytes)) << "byte " << byte;
    }
  }
}

// The text of an attribute lies in the header of the root, which HDF5 guards itself.
TEST_F(CheckpointDamage, EveryFlippedBitOfAnAttributeIsDetected) {
  for (const std::string& text : {info_.deck, info_.build, std::string("next_sample")}) {
    const std::size_t begin = bytes_.find(text);
    ASSERT_NE(begin, std::string::npos) << text;
    for (std::size_t bit = 0; bit < 8 * text.size(); bit += 5) {
      std::string bytes = bytes_;
      bytes[begin + bit / 8] = static_cast<char>(bytes[begin + bit / 8] ^ (1 << (bit % 8)));
      EXPECT_TRUE(is_detected(bytes)) << text << ", bit " << bit;
    }
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
