// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the tests of token data share.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "pleat/base/error.hpp"
#include "pleat/io/token_data.hpp"

namespace pleat::test {

/// \brief A folder of its own, removed at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    // In memory where there is such a place: the fuzz tests write thousands of files.
    const bool in_memory = ::access("/dev/shm", W_OK) == 0;
    const std::filesystem::path parent =
        in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = parent / "pleat-data-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr)
      throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline io::HostBatch make_batch(std::int64_t rows, std::int64_t sequence) {
  return {HostView<std::int32_t, 2>("tokens", rows, sequence),
          HostView<std::int32_t, 2>("labels", rows, sequence),
          HostView<std::uint8_t, 2>("loss_mask", rows, sequence),
          HostView<std::uint8_t, 2>("real", rows, sequence)};
}

/// \brief A row of a batch: all inputs, then the last label.
inline std::vector<std::int64_t> row_tokens(const io::HostBatch& batch, std::size_t row) {
  std::vector<std::int64_t> tokens;
  const std::size_t sequence = batch.tokens_BS.extent(1);
  for (std::size_t s = 0; s < sequence; ++s) tokens.push_back(batch.tokens_BS(row, s));
  tokens.push_back(batch.labels_BS(row, sequence - 1));
  return tokens;
}

inline std::vector<std::int64_t> training_sample(const io::TokenData& data,
                                                 std::int64_t number,
                                                 std::int64_t sequence) {
  const io::HostBatch batch = make_batch(1, sequence);
  data.training_batch(number, batch);
  return row_tokens(batch, 0);
}

inline std::vector<std::int64_t> validation_sample(const io::TokenData& data,
                                                   std::int64_t number,
                                                   std::int64_t sequence) {
  const io::HostBatch batch = make_batch(1, sequence);
  data.validation_batch(number, batch);
  return row_tokens(batch, 0);
}

/// \brief Runs `action`, which must throw an InputError of that id with all parts.
template <class Action>
void expect_input_error(const std::string& id, const std::vector<std::string>& parts,
                        Action action) {
  try {
    action();
    ADD_FAILURE() << "no error, expected " << id;
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), id) << error.what();
    EXPECT_EQ(error.exit_code(), ExitCode::kBadInput);
    for (const std::string& part : parts) {
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  }
}

}  // namespace pleat::test
