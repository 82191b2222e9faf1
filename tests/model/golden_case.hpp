// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Access to the references of tests/golden (see its README.md).

#include <cstdint>
#include <string>
#include <vector>

#include "model/comparison.hpp"
#include "model/model_problem.hpp"
#include "pleat/io/hdf5.hpp"

namespace pleat::test {

/// \brief One of the files of one of the cases.
class GoldenCase {
 public:
  /// \param file  "golden.h5" or "trace.h5"
  GoldenCase(const std::string& name, const std::string& file);

  /// \brief Of config.json, with the loss coefficients of the reference.
  const plan::ModelConfig& config() const { return config_; }
  plan::ModelConfig& config() { return config_; }
  io::Hdf5Group root() const { return file_.root(); }
  std::int64_t integer(const std::string& attribute) const {
    return root().int64_attribute(attribute);
  }
  double number(const std::string& attribute) const {
    return root().double_attribute(attribute);
  }
  std::vector<double> reals(const std::string& path) const {
    return root().dataset(path).read_all<double>();
  }
  std::vector<std::int32_t> integers(const std::string& path) const {
    return root().dataset(path).read_all<std::int32_t>();
  }
  /// \brief B sequences of S tokens, all real and with loss.
  HostBatch batch(std::vector<std::int32_t> tokens_T,
                  std::vector<std::int32_t> labels_T) const;
  /// \brief The model with the weights that the reference started from.
  template <class T>
  ModelProblem<T> problem() const;

 private:
  std::string folder_;
  io::Hdf5File file_;
  plan::ModelConfig config_;
};

/// \brief A tensor of the groups grads and final_weights: its elements within `tolerance`
/// of `scale` and what the file rounded away, its three checksums without any rounding.
void expect_rounded_tensor(const io::Hdf5Dataset& expected,
                           const std::vector<double>& actual, double tolerance,
                           double scale);

/// \brief Every tensor has its data set in the group, and no other is there.
void expect_names(const io::Hdf5Group& group, const HostTensors& tensors);

/// \brief The cases by name, for testing::ValuesIn, and how a test is called after one.
std::vector<std::string> golden_cases();
std::string test_name(const testing::TestParamInfo<std::string>& info);

}  // namespace pleat::test
