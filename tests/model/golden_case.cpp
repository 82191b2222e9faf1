// SPDX-License-Identifier: Apache-2.0
#include "model/golden_case.hpp"

#include <algorithm>
#include <cmath>

#include "pleat/io/hugging_face.hpp"

namespace pleat::test {
namespace {

/// The weights of hash_dot: a different one for every position.
double hash_weight(std::uint64_t i) {
  return static_cast<double>((i * 2654435761ULL) % (1ULL << 32)) / 4294967296.0 - 0.5;
}

}  // namespace

GoldenCase::GoldenCase(const std::string& name, const std::string& file)
    : folder_(PLEAT_TESTS_DIR "/golden/" + name),
      file_(io::Hdf5File::open_read(folder_ + "/" + file)),
      config_(io::read_hugging_face_config(folder_).model) {
  config_.moe.auxiliary_coefficient = number("aux_loss_coeff");
  config_.moe.z_coefficient = number("z_loss_coeff");
}

HostBatch GoldenCase::batch(std::vector<std::int32_t> tokens_T,
                            std::vector<std::int32_t> labels_T) const {
  const std::vector<std::uint8_t> ones(tokens_T.size(), 1);
  return {integer("batch"),    integer("seq"), std::move(tokens_T),
          std::move(labels_T), ones,           ones};
}

template <class T>
ModelProblem<T> GoldenCase::problem() const {
  ModelProblem<T> problem(config_, integer("seq"));
  io::load_hugging_face_weights<T>(folder_, problem.weights().layout(), problem.weights());
  return problem;
}

template ModelProblem<float> GoldenCase::problem() const;
template ModelProblem<double> GoldenCase::problem() const;

void expect_rounded_tensor(const io::Hdf5Dataset& expected,
                           const std::vector<double>& actual, double tolerance,
                           double scale) {
  const auto values = expected.read_all<double>();
  const std::string& name = expected.path();
  ASSERT_EQ(actual.size(), values.size()) << name;
  const auto bits = static_cast<int>(expected.int64_attribute("mantissa_bits"));
  const double rounding = bits == 52 ? 0.0 : std::ldexp(1.0, -(bits + 1));
  double sum = 0.0;
  double hash_dot = 0.0;
  double worst = 0.0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double off = std::abs(actual[i] - values[i]) - rounding * std::abs(values[i]);
    if (!(off <= worst)) worst = std::isnan(off) ? HUGE_VAL : off;
    sum += actual[i];
    hash_dot += actual[i] * hash_weight(i);
  }
  Record("elements").expect_below(tolerance, worst / scale, name);

  const double l2 = expected.double_attribute("l2");
  const double spread =
      std::max(l2 * std::sqrt(static_cast<double>(actual.size())), 1e-300);
  const auto expect_checksum = [&](const char* attribute, double value) {
    Record("checksums")
        .expect_below(tolerance,
                      std::abs(value - expected.double_attribute(attribute)) / spread,
                      name + ": " + attribute);
  };
  expect_checksum("sum", sum);
  expect_checksum("l2", norm_of(actual));
  expect_checksum("hash_dot", hash_dot);
}

void expect_names(const io::Hdf5Group& group, const HostTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, values] : tensors) names.push_back(name);
  EXPECT_EQ(names, group.children());
}

std::vector<std::string> golden_cases() {
  return {"mixtral-tiny", "qwen2moe-tiny", "mixtral-tiny-noaux", "qwen3moe-tiny"};
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace pleat::test
