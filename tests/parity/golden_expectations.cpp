// SPDX-License-Identifier: Apache-2.0
#include "golden_expectations.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "pleat/io/safetensors.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

double largest_relative_difference(const Values& values, const Values& expected) {
  EXPECT_EQ(values.size(), expected.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < std::min(values.size(), expected.size()); ++i) {
    const double scale = expected[i] == 0.0 ? 1.0 : std::abs(expected[i]);
    worst = std::max(worst, std::abs(values[i] - expected[i]) / scale);
  }
  return worst;
}

/// The checksums that the golden files keep of tensors stored in rounded form.
struct Checksums {
  double sum = 0.0;
  double l2 = 0.0;
  double hash_dot = 0.0;
};

Checksums checksums_of(const Values& values) {
  Checksums result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto hashed = static_cast<std::uint32_t>(static_cast<std::uint64_t>(i) * 2654435761ULL);
    result.sum += values[i];
    result.l2 += values[i] * values[i];
    result.hash_dot += values[i] * (static_cast<double>(hashed) / 4294967296.0 - 0.5);
  }
  result.l2 = std::sqrt(result.l2);
  return result;
}

}  // namespace

void expect_tensor(const std::string& name, const Values& values, const io::Hdf5Dataset& golden,
                   double tolerance) {
  const Values expected = golden.read_all<double>();
  ASSERT_EQ(values.size(), expected.size()) << name;
  double largest = 0.0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  const double rounding =
      std::ldexp(1.0, -static_cast<int>(golden.int64_attribute("mantissa_bits")) - 1);
  double worst = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    worst = std::max(worst, std::abs(values[i] - expected[i]) - rounding * std::abs(expected[i]));
  }
  EXPECT_LE(worst, tolerance * largest) << name;
  const Checksums sums = checksums_of(values);
  const double l2 = golden.double_attribute("l2");
  const double allowed = 1e-12 * l2 * std::sqrt(static_cast<double>(values.size()));
  EXPECT_NEAR(sums.sum, golden.double_attribute("sum"), allowed) << name;
  EXPECT_NEAR(sums.l2, l2, allowed) << name;
  EXPECT_NEAR(sums.hash_dot, golden.double_attribute("hash_dot"), allowed) << name;
}

void expect_trace(const std::string& metrics_path, const std::string& trace_path,
                  double loss_tolerance, double norm_tolerance, std::size_t steps) {
  const auto metrics = read_metrics(metrics_path);
  const io::Hdf5File file = io::Hdf5File::open_read(trace_path);
  const std::vector<std::tuple<const char*, const char*, double>> columns{
      {"loss", "trace/loss_total", loss_tolerance}, {"loss_ce", "trace/loss_ce", loss_tolerance},
      {"loss_aux", "trace/loss_aux", loss_tolerance}, {"loss_z", "trace/loss_z", loss_tolerance},
      {"grad_norm", "trace/grad_norm", norm_tolerance}, {"learning_rate", "trace/lr", 1e-12}};
  for (const auto& [column, dataset, tolerance] : columns) {
    Values expected = file.root().dataset(dataset).read_all<double>();
    Values values = metrics.at(column);
    ASSERT_EQ(expected.size(), kTraceSteps);
    ASSERT_EQ(values.size(), kTraceSteps);
    expected.resize(steps);
    values.resize(steps);
    EXPECT_LE(largest_relative_difference(values, expected), tolerance) << column;
  }
}

void expect_gradients(const std::string& gradients_path, const std::string& golden_path) {
  const io::Hdf5File golden_file = io::Hdf5File::open_read(golden_path);
  const io::Hdf5File file = io::Hdf5File::open_read(gradients_path);
  const io::Hdf5Group expected = golden_file.root().group("grads");
  const io::Hdf5Group gradients = file.root().group("grads");
  ASSERT_EQ(gradients.children(), expected.children());
  for (const std::string& name : expected.children()) {
    const io::Hdf5Dataset gradient = gradients.dataset(name);
    EXPECT_EQ(gradient.shape(), expected.dataset(name).shape()) << name;
    expect_tensor(name, gradient.read_all<double>(), expected.dataset(name), 1e-11);
  }
}

void expect_final_weights(const std::string& model_folder, const std::string& trace_path) {
  const io::SafetensorsReader model(model_folder);
  const io::Hdf5File trace = io::Hdf5File::open_read(trace_path);
  const io::Hdf5Group expected = trace.root().group("final_weights");
  ASSERT_EQ(model.entries().size(), expected.children().size());
  for (const std::string& name : expected.children()) {
    ASSERT_TRUE(model.contains(name)) << name;
    const io::SafetensorsEntry& entry = model.at(name);
    EXPECT_EQ(entry.type, io::ElementType::kF64) << name;
    Values values(static_cast<std::size_t>(tensor::element_count(entry.shape)));
    model.read<double>(entry, values);
    expect_tensor(name, values, expected.dataset(name), 1e-11);
  }
}

}  // namespace pleat::test
