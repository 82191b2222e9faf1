// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the tests of interrupted runs share: a small run, its mappings, and what makes two
/// runs the same.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/job.hpp"

namespace pleat::test {

/// \brief A way to spread the small model over ranks.
struct RunMapping {
  const char* name;
  int ranks;
  const char* overrides;  ///< "section.key=value ..."
};

/// \brief 12 steps over an order of samples that crosses epochs, with validation, every kind of
/// router loss, and a checkpoint every 5 steps.
extern const char* const kSmallDeck;
inline constexpr int kSmallSteps = 12;

/// \brief A fixture with a folder of its own, in memory where there is such a place.
class RestartTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  const std::string& folder() const { return folder_; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string checkpoints(const std::string& run) const { return path(run + "/checkpoints"); }
  void write(const std::string& name, const std::string& text) const;

  JobSettings settings(int ranks) const;
  /// \brief `pleat train deck.toml run.output=RUN OVERRIDES`, without waiting for it.
  std::unique_ptr<Job> start(int ranks, const std::string& run, const std::string& overrides,
                             const std::map<std::string, std::string>& environment = {}) const;
  /// \brief The same to its end, which must be good.
  JobResult complete(int ranks, const std::string& run, const std::string& overrides) const;
  JobResult pleat(const std::string& arguments) const;

  /// \brief The step that a run would go on from, by the checkpoints in its folder; 0: from the
  /// start. None of them may be damaged.
  std::int64_t resumable_step(const std::string& run) const;
  /// \brief The same weights, moments, place in the data, rows and columns (but those of times
  /// and memory) up to the last step, and each step once in the log.
  void expect_same_runs(const std::string& a, const std::string& b, int steps) const;

 private:
  std::string folder_;
};

/// \brief Words at blanks.
std::vector<std::string> words_of(const std::string& text);
std::string text_of_file(const std::string& path);

/// \brief metrics.csv as text, by column; a torn last line is left out.
std::map<std::string, std::vector<std::string>> metrics_columns(const std::string& path);
/// \brief The last step that metrics.csv has a whole row of; 0: none.
std::int64_t last_recorded_step(const std::string& path);
/// \brief The last step that run.log tells of; 0: none.
std::int64_t last_logged_step(const std::string& path);
/// \brief The step in "resuming after step N from ..."; nothing where the job did not say so.
std::optional<std::int64_t> resumed_step(const std::string& output);

}  // namespace pleat::test
