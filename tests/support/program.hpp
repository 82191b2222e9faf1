// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Running the program as a user does, in a folder of the test's own.
///
/// A test that includes this is registered with PROGRAM, which defines PLEAT_PROGRAM.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/command.hpp"
#include "support/places.hpp"

namespace pleat::test {

/// \brief A fixture with a scratch folder in which the program runs.
class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "pleat-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return path(name);
  }

  /// \brief `pleat ARGUMENTS` in the scratch folder.
  /// \param environment  "NAME=value ..." in front of the command
  CommandResult pleat(const std::string& arguments, const std::string& environment = "") const {
    return run_command("cd '" + folder_.string() + "' && " + environment + " '" + program() +
                       "' " + arguments);
  }

  std::filesystem::path folder_;
};

/// \brief A metrics.csv by column; empty fields are NaN.
inline std::map<std::string, std::vector<double>> read_metrics(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> names;
  std::map<std::string, std::vector<double>> columns;
  std::string line;
  for (bool header = true; std::getline(file, line); header = false) {
    std::istringstream fields(line);
    std::string field;
    for (std::size_t i = 0; std::getline(fields, field, ','); ++i) {
      if (header) {
        names.push_back(field);
      } else {
        columns[names.at(i)].push_back(field.empty() ? std::nan("") : std::stod(field));
      }
    }
  }
  return columns;
}

}  // namespace pleat::test
