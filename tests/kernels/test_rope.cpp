// SPDX-License-Identifier: Apache-2.0
// Rotary embedding against the golden tables and against rotation by complex numbers.
#include <complex>

#include "pleat/io/hdf5.hpp"
#include "pleat/kernels/rope.hpp"
#include "reference.hpp"
#include "support/places.hpp"

namespace pleat::test {
namespace {

using kernels::Rotation;

template <class T>
class Rope : public testing::Test {};
TYPED_TEST_SUITE(Rope, Storages);

/// Row t, head h, pair i turns by t theta^(-2i/d), as a complex number.
Values reference_rope(Values x, Index sequence, Index row, Index heads, Index dim,
                      double theta, double sign) {
  const Index half = dim / 2;
  const Index tokens = static_cast<Index>(x.size()) / row;
  for (Index t = 0; t < tokens; ++t) {
    for (Index h = 0; h < heads; ++h) {
      for (Index i = 0; i < half; ++i) {
        const double frequency = std::pow(theta, -2.0 * double(i) / double(dim));
        const double angle = sign * double(t % sequence) * frequency;
        double& low = x[t * row + h * dim + i];
        double& high = x[t * row + h * dim + half + i];
        const auto turned = std::complex<double>(low, high) * std::polar(1.0, angle);
        low = turned.real();
        high = turned.imag();
      }
    }
  }
  return x;
}

TYPED_TEST(Rope, TurnsTheRotatedHeadsAndNoOthers) {
  using T = TypeParam;
  for (const Index dim : {2, 8, 10, 64, 256}) {
    for (const Index sequence : {1, 7, 33}) {
      constexpr Index kBatch = 3, kHeads = 3, kRotated = 2;
      constexpr double kTheta = 1.0e4;
      const Index row = kHeads * dim;
      const Values x = random_values<T>(kBatch * sequence * row, 1);
      const auto tables = kernels::make_rope_tables<T>(sequence, dim, kTheta);
      for (const Rotation rotation : {Rotation::kForward, Rotation::kBackward}) {
        const auto x_TQ = to_device<T>(x, kBatch * sequence, row);
        kernels::rope_in_place<T>(ExecSpace(), rotation, tables, sequence, kRotated, dim,
                                  x_TQ);
        const double sign = rotation == Rotation::kForward ? 1.0 : -1.0;
        expect_close(to_host(x_TQ),
                     reference_rope(x, sequence, row, kRotated, dim, kTheta, sign),
                     tolerance<T>(), "rope");
      }
    }
  }
}

TYPED_TEST(Rope, TablesOfGivenPositions) {
  using T = TypeParam;
  constexpr Index kDim = 8;
  constexpr double kTheta = 1.0e4;
  const auto all = kernels::make_rope_tables<T>(40, kDim, kTheta);
  const std::vector<Index> positions = {3, 4, 5, 39, 0, 3};
  const auto tables = kernels::make_rope_tables<T>(positions, kDim, kTheta);
  const auto rows_of = [&](const Values& table) {
    Values rows;
    for (const Index position : positions) {
      for (Index i = 0; i < kDim / 2; ++i) rows.push_back(table[position * kDim / 2 + i]);
    }
    return rows;
  };
  expect_same(to_host(tables.cos_Sd), rows_of(to_host(all.cos_Sd)), "cos");
  expect_same(to_host(tables.sin_Sd), rows_of(to_host(all.sin_Sd)), "sin");
  EXPECT_NEAR(to_host(tables.sin_Sd)[3 * kDim / 2], std::sin(39.0), 1.0e-6);
}

TYPED_TEST(Rope, TablesEqualTheGoldenOnes) {
  using T = TypeParam;
  for (const std::string name : {"mixtral-tiny", "qwen2moe-tiny", "qwen3moe-tiny"}) {
    const auto file = io::Hdf5File::open_read(tests_folder() + "/golden/" +
                                              name + "/golden.h5");
    const auto debug = file.root().group("debug");
    const auto shape = debug.dataset("rope_cos").shape();
    const Index sequence = shape[0], dim = shape[1];
    const auto cosine = debug.dataset("rope_cos").template read_all<double>();
    const auto sine = debug.dataset("rope_sin").template read_all<double>();
    const auto frequency = debug.dataset("rope_inv_freq").template read_all<double>();
    // The last frequency is theta^(-(d-2)/d).
    const double theta = std::pow(frequency.back(), -double(dim) / double(dim - 2));
    const auto tables = kernels::make_rope_tables<T>(sequence, dim, std::round(theta));
    Values expected_cosine, expected_sine;
    for (Index s = 0; s < sequence; ++s) {
      for (Index i = 0; i < dim / 2; ++i) {
        expected_cosine.push_back(cosine[s * dim + i]);
        expected_sine.push_back(sine[s * dim + i]);
      }
    }
    const double relative = std::is_same_v<T, double> ? 1.0e-13 : 1.0e-7;
    expect_close(to_host(tables.cos_Sd), expected_cosine, relative, name + " cos");
    expect_close(to_host(tables.sin_Sd), expected_sine, relative, name + " sin");
  }
}

}  // namespace
}  // namespace pleat::test
