// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Random initial weights: their distribution, and that they depend on seed, name
/// and global index alone.

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "model/comparison.hpp"
#include "model/model_cases.hpp"
#include "model/model_problem.hpp"
#include "pleat/base/random.hpp"

namespace pleat::test {
namespace {

constexpr std::uint64_t kSeed = 12345678901;

using tensor::FlatTensors;
using tensor::ParameterLayout;
using tensor::ParameterSpec;

template <class T>
HostTensors initial(const plan::ModelConfig& config, std::uint64_t seed,
                    std::shared_ptr<const ParameterLayout> layout) {
  const FlatTensors<T> weights(std::move(layout), "pleat::test::initial");
  model::initialise<T>(ExecSpace(), config, seed, weights);
  HostTensors tensors;
  for (const ParameterSpec& parameter : weights.layout().parameters()) {
    tensors[parameter.name] = to_host(weights.flat(parameter));
  }
  return tensors;
}

template <class T>
HostTensors initial(const plan::ModelConfig& config, std::uint64_t seed) {
  return initial<T>(config, seed, model::parameter_layout(config));
}

// Computed by an independent program (Philox4x32-10, FNV-1a, Box and Muller in Python).
TEST(Initialisation, EqualsAnIndependentComputation) {
  const HostTensors weights = initial<double>(small_model(), kSeed);
  const auto expect = [&](const std::string& name, std::size_t i, double expected) {
    EXPECT_NEAR(weights.at(name)[i], expected, 1e-15) << name << " " << i;
  };
  expect("model.embed_tokens.weight", 0, -0.009255699577105527);
  expect("model.embed_tokens.weight", 275, -0.03641930360270612);
  expect("model.layers.1.mlp.experts.4.down_proj.weight", 83, -0.007170919710782449);
  expect("model.layers.0.self_attn.q_proj.weight", 1, 0.005757150447562923);
}

// Any change of the numbers changes every run that starts from a seed. Rounded, since the
// last bits of logarithm and cosine differ between mathematical libraries.
TEST(Initialisation, StaysTheSameFromVersionToVersion) {
  std::uint64_t hash = hash_name("");
  for (const auto& [name, values] : initial<double>(small_model(), kSeed)) {
    for (const double value : values) {
      hash ^= static_cast<std::uint64_t>(std::llround(std::ldexp(value, 32)));
      hash *= 0x100000001b3ULL;
    }
  }
  EXPECT_EQ(hash, 5733385839346054247ULL);
}

TEST(Initialisation, HasTheMeanAndDeviationOfTheConfiguration) {
  plan::ModelConfig config = small_model();
  config.hidden = 96;
  config.vocab = 500;
  config.init_std = 0.03;
  config.qkv_bias = true;
  config.qk_norm = true;
  for (const auto& [name, values] : initial<float>(config, kSeed)) {
    if (name.ends_with("norm.weight")) {
      EXPECT_EQ(values, std::vector<double>(values.size(), 1.0)) << name;
    } else if (name.ends_with(".bias")) {
      EXPECT_EQ(values, std::vector<double>(values.size(), 0.0)) << name;
    } else {
      // Within five standard errors.
      const auto count = static_cast<double>(values.size());
      const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
      EXPECT_NEAR(mean, 0.0, 5.0 * 0.03 / std::sqrt(count)) << name;
      EXPECT_NEAR(norm_of(values) / std::sqrt(count), 0.03,
                  5.0 * 0.03 / std::sqrt(2.0 * count))
          << name;
    }
  }
}

TEST(Initialisation, DiffersBetweenSeedsAndTensors) {
  const HostTensors weights = initial<double>(small_model(), kSeed);
  EXPECT_EQ(weights, initial<double>(small_model(), kSeed));
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  EXPECT_NE(weights.at(q), weights.at("model.layers.1.self_attn.q_proj.weight"));
  EXPECT_NE(weights.at(q), initial<double>(small_model(), kSeed + 1).at(q));
}

/// A layout in which this rank holds rows 3 .. 6 and columns 2 .. 6 of each matrix.
std::shared_ptr<const ParameterLayout> layout_of_boxes(const ParameterLayout& whole) {
  auto layout = std::make_shared<ParameterLayout>();
  for (ParameterSpec parameter : whole.parameters()) {
    if (parameter.global_shape.size() != 2 || parameter.global_shape[0] < 7) continue;
    parameter.local_offset = {3, 2};
    parameter.local_shape = {4, 5};
    layout->add_block(0, {parameter});
  }
  layout->finalize();
  return layout;
}

TEST(Initialisation, OfAPartIsThatPartOfTheWhole) {
  const plan::ModelConfig config = small_model();
  const auto whole_layout = model::parameter_layout(config);
  const HostTensors whole = initial<double>(config, kSeed, whole_layout);
  const HostTensors boxes =
      initial<double>(config, kSeed, layout_of_boxes(*whole_layout));
  EXPECT_GT(boxes.size(), 20U);
  for (const auto& [name, values] : boxes) {
    const std::int64_t columns = whole_layout->at(name).global_shape[1];
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto row = static_cast<std::int64_t>(3 + i / 5);
      const auto column = static_cast<std::int64_t>(2 + i % 5);
      EXPECT_EQ(values[i],
                whole.at(name)[static_cast<std::size_t>(row * columns + column)]);
    }
  }
}

TEST(Initialisation, OfAPieceIsThatPieceOfTheBox) {
  plan::ModelConfig config = small_model();
  config.qkv_bias = true;
  const auto layout = layout_of_boxes(*model::parameter_layout(config));
  const HostTensors boxes = initial<float>(config, kSeed, layout);
  for (const ParameterSpec& parameter : layout->parameters()) {
    constexpr std::int64_t kFirst = 3;
    const DeviceView<float, 1> piece("pleat::test::piece", 11);
    model::initialise_piece<float>(ExecSpace(), config, kSeed, parameter, kFirst, piece);
    const std::vector<double> values = to_host(piece);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], boxes.at(parameter.name)[kFirst + i]) << parameter.name;
    }
  }
}

// On every mapping the model starts from the same weights.
TEST(Initialisation, EveryRankStartsWithItsPartOfTheWhole) {
  plan::ModelConfig config = small_model();
  config.moe.experts = 4;
  config.moe.ffn = 8;
  const auto whole_layout = model::parameter_layout(config);
  const HostTensors whole = initial<double>(config, kSeed, whole_layout);
  const comm::GridShape shape(
      {.pipeline = 2, .tensor = 4, .expert = 2, .expert_tensor = 2}, 8);
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    const auto layout =
        model::parameter_layout(model::make_placement(config, shape, rank, {1, 1}));
    for (const auto& [name, values] : initial<double>(config, kSeed, layout)) {
      const ParameterSpec& part = layout->at(name);
      const auto size = static_cast<std::int64_t>(values.size());
      ASSERT_EQ(size, part.local_count()) << name;
      const std::int64_t first_row =
          part.global_shape.size() > 1 ? part.local_offset.front() : 0;
      for (std::int64_t i = 0; i < size; ++i) {
        const std::int64_t row = first_row + i / part.local_shape.back();
        const std::int64_t column =
            part.local_offset.back() + i % part.local_shape.back();
        ASSERT_EQ(
            values[static_cast<std::size_t>(i)],
            whole.at(
                name)[static_cast<std::size_t>(row * part.global_shape.back() + column)])
            << name << " of rank " << rank;
      }
    }
  }
}

}  // namespace
}  // namespace pleat::test
