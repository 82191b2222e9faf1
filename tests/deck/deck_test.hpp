// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Deck files in a scratch folder, and what reading them complains about.

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "pleat/base/error.hpp"

namespace pleat::test {

/// \brief A folder of its own for each test, removed afterwards.
class ScratchFolder : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("pleat_" + std::string(info->test_suite_name()) + "_" + info->name() +
               "_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// \returns the path of the file
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    // A new file: cutting one that is still on its way to the disk would wait for it.
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

  std::filesystem::path folder_;
};

/// \brief "PL0203: text" of the InputError that the call must throw.
inline std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kBadInput);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace pleat::test
