// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <numeric>

#include "files/support.hpp"
#include "pleat/io/checksum.hpp"

namespace pleat::io {
namespace {

// Computed with numpy from the formula in docs/checkpoints.md.
TEST(Checksum, EqualsNumpy) {
  const std::array<double, 6> doubles{1.0, -2.5, 3.25, 0.0, -0.0, 1e-300};
  EXPECT_EQ(content_checksum<double>(doubles), 0x3d7d48a870c8fd8ULL);
  const std::array<float, 6> floats{1.0F, -2.5F, 3.25F, 0.0F, -0.0F, 1e-30F};
  EXPECT_EQ(content_checksum<float>(floats), 0xfab62e2dc0261cdbULL);
  const std::array<std::uint16_t, 3> brains{0x3f80, 0xc020, 0x4050};
  EXPECT_EQ(content_checksum(ElementType::kBf16, std::as_bytes(std::span(brains))),
            0xcc624a025e40bc08ULL);
}

template <class Bits>
std::uint64_t plain_sum(std::span<const Bits> bits, std::uint64_t first) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bits.size(); ++i) sum += checksum_term(first + i, bits[i]);
  return sum;
}

// Several elements are handled at a time: lengths and first places around those blocks.
template <class Bits>
void expect_plain_sums(ElementType type) {
  test::Dice dice(3);
  std::vector<Bits> bits(100);
  for (Bits& each : bits) each = static_cast<Bits>(dice.below(std::uint64_t{1} << 63) * 2 + 1);
  for (std::size_t begin = 0; begin < 5; ++begin) {
    for (std::size_t count = 0; begin + count <= bits.size(); ++count) {
      const auto part = std::span<const Bits>(bits).subspan(begin, count);
      for (const std::uint64_t first : {std::uint64_t{begin}, std::uint64_t{0xfffffffb}}) {
        ASSERT_EQ(content_checksum(type, std::as_bytes(part), first), plain_sum(part, first))
            << begin << ", " << count;
      }
    }
  }
}

TEST(Checksum, EqualsThePlainSum) {
  expect_plain_sums<std::uint64_t>(ElementType::kF64);
  expect_plain_sums<std::uint32_t>(ElementType::kF32);
  expect_plain_sums<std::uint16_t>(ElementType::kF16);
}

TEST(Checksum, PartsAddUp) {
  std::vector<double> values(1000);
  std::iota(values.begin(), values.end(), -3.0);
  const std::span<const double> all(values);
  EXPECT_EQ(content_checksum<double>(all.first(333)) +
                content_checksum<double>(all.subspan(333), 333),
            content_checksum<double>(all));
}

TEST(Checksum, BoxesOfAThreeDimensionalTensorAddUp) {
  const tensor::Shape shape{4, 6, 5};
  std::vector<float> values(120);
  std::iota(values.begin(), values.end(), 0.5F);
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < 4; i += 2) {
    for (std::int64_t j = 0; j < 6; j += 3) {
      std::vector<float> box;
      for (std::int64_t a = i; a < i + 2; ++a) {
        for (std::int64_t b = j; b < j + 3; ++b) {
          for (std::int64_t c = 1; c < 5; ++c) {
            box.push_back(values[static_cast<std::size_t>((a * 6 + b) * 5 + c)]);
          }
        }
      }
      sum += box_checksum(ElementType::kF32, std::as_bytes(std::span(box)), shape,
                          {i, j, 1}, {2, 3, 4});
    }
  }
  for (std::int64_t row = 0; row < 24; ++row) {  // the column that the boxes left out
    const auto index = static_cast<std::size_t>(row * 5);
    sum += content_checksum<float>(std::span<const float>(&values[index], 1), index);
  }
  EXPECT_EQ(sum, content_checksum<float>(values));
}

TEST(Checksum, EveryBitAndEveryPlaceCounts) {
  std::array<double, 9> values{};
  std::iota(values.begin(), values.end(), 1.0);
  const std::uint64_t before = content_checksum<double>(values);
  for (std::size_t bit = 0; bit < sizeof(values) * 8; ++bit) {
    auto changed = values;
    reinterpret_cast<unsigned char*>(changed.data())[bit / 8] ^=
        static_cast<unsigned char>(1U << (bit % 8));
    EXPECT_NE(content_checksum<double>(changed), before);
  }
  std::swap(values[2], values[7]);
  EXPECT_NE(content_checksum<double>(values), before);
}

}  // namespace
}  // namespace pleat::io
