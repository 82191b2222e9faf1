// SPDX-License-Identifier: Apache-2.0
#include "restart_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

#include "pleat/base/log.hpp"
#include "pleat/io/checkpoint.hpp"

namespace pleat::test {

namespace fs = std::filesystem;

const char* const kSmallDeck = R"(
[run]
steps = 12
seed = 7
[model]
layers = 4
hidden = 32
heads = 4
kv_heads = 2
ffn = 24
vocab = 96
[moe]
experts = 4
ffn = 24
dense_layers = [1]
aux_loss.coeff = 0.01
z_loss = 0.001
[batch]
sequence = 16
micro = 1
global = 4
[optimizer]
lr = 5e-3
warmup = 2
[data]
format = "synthetic"
synthetic_samples = 20   # 2.4 epochs
split = 0.2
[validation]
every = 4
[checkpoint]
every = 5
)";

namespace {

/// Times, what follows from them, and memory: alike in no two runs.
bool is_measured(const std::string& column) {
  return column.starts_with("seconds") || column == "tokens_per_second" ||
         column == "model_flops" || column == "mfu" || column == "peak_memory";
}

void expect_same_state(const std::string& path_a, const std::string& path_b) {
  const io::CheckpointReader a(path_a);
  const io::CheckpointReader b(path_b);
  EXPECT_EQ(a.info().step, b.info().step);
  EXPECT_EQ(a.info().next_sample, b.info().next_sample);
  EXPECT_EQ(a.info().precision, b.info().precision);
  EXPECT_EQ(a.info().skipped, b.info().skipped);
  EXPECT_EQ(a.info().rollbacks, b.info().rollbacks);
  EXPECT_EQ(a.info().recent_losses, b.info().recent_losses);
  for (const auto group : {io::TensorGroup::kParameters, io::TensorGroup::kFirstMoment,
                           io::TensorGroup::kSecondMoment}) {
    ASSERT_FALSE(a.names(group).empty());
    ASSERT_EQ(a.names(group), b.names(group));
    for (const std::string& name : a.names(group)) {
      EXPECT_TRUE(a.read_raw(group, name) == b.read_raw(group, name))
          << io::tensor_path(group, name) << " differs";
    }
  }
}

std::vector<std::string> numbers_to(int steps) {
  std::vector<std::string> numbers;
  for (int step = 1; step <= steps; ++step) numbers.push_back(std::to_string(step));
  return numbers;
}

/// Every step has its row once, in order, and the same row as in the other run.
void expect_same_metrics(const std::string& path_a, const std::string& path_b, int steps) {
  const auto a = metrics_columns(path_a);
  const auto b = metrics_columns(path_b);
  ASSERT_EQ(a.at("step"), numbers_to(steps));
  ASSERT_EQ(b.at("step"), numbers_to(steps));
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [column, values] : a) {
    if (!is_measured(column)) {
      EXPECT_EQ(values, b.at(column)) << column;
    }
  }
}

/// Of the progress lines of run.log.
std::vector<std::string> logged_steps(const std::string& path) {
  static const std::regex kLine("step ([0-9]+)/[0-9]+ .*");
  std::vector<std::string> found;
  std::istringstream text(text_of_file(path));
  std::smatch match;
  for (std::string line; std::getline(text, line);) {
    if (std::regex_match(line, match, kLine)) found.push_back(match[1]);
  }
  return found;
}

}  // namespace

void RestartTest::SetUp() {
  const bool memory = access("/dev/shm", W_OK | X_OK) == 0;
  const fs::path place = memory ? fs::path("/dev/shm") : fs::temp_directory_path();
  std::string pattern = (fs::canonical(place) / "pleat-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
  write("deck.toml", kSmallDeck);
}

void RestartTest::TearDown() {
  // What a failure leaves can be looked at.
  if (HasFailure() && std::getenv("PLEAT_TEST_KEEP") != nullptr) return;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void RestartTest::write(const std::string& name, const std::string& text) const {
  std::ofstream(path(name), std::ios::binary) << text;
}

JobSettings RestartTest::settings(int ranks) const {
  return {.program = PLEAT_PROGRAM, .folder = folder_, .ranks = ranks};
}

std::unique_ptr<Job> RestartTest::start(
    int ranks, const std::string& run, const std::string& overrides,
    const std::map<std::string, std::string>& environment) const {
  JobSettings job = settings(ranks);
  job.environment = environment;
  return std::make_unique<Job>(
      job, words_of("train deck.toml run.output=" + run + " " + overrides));
}

JobResult RestartTest::complete(int ranks, const std::string& run,
                                const std::string& overrides) const {
  const JobResult result = start(ranks, run, overrides)->wait();
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return result;
}

JobResult RestartTest::pleat(const std::string& arguments) const {
  return Job(settings(1), words_of(arguments)).wait();
}

std::int64_t RestartTest::resumable_step(const std::string& run) const {
  std::FILE* file = std::tmpfile();
  std::optional<std::string> found;
  {
    Log log(true, file);
    found = io::find_resume_checkpoint(checkpoints(run), log);
  }
  EXPECT_EQ(std::ftell(file), 0) << "a checkpoint of '" << run << "' is damaged";
  std::fclose(file);
  return found ? io::CheckpointReader(*found).info().step : 0;
}

void RestartTest::expect_same_runs(const std::string& a, const std::string& b,
                                   int steps) const {
  const std::string last = "/" + io::checkpoint_name(steps);
  expect_same_state(checkpoints(a) + last, checkpoints(b) + last);
  expect_same_metrics(path(a + "/metrics.csv"), path(b + "/metrics.csv"), steps);
  // A rollback shows its steps again, in both.
  const auto rollbacks = metrics_columns(path(a + "/metrics.csv")).at("rollbacks").back();
  const auto logged = logged_steps(path(a + "/run.log"));
  if (rollbacks == "0") {
    EXPECT_EQ(logged, numbers_to(steps));
  }
  EXPECT_EQ(logged_steps(path(b + "/run.log")), logged);
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::map<std::string, std::vector<std::string>> metrics_columns(const std::string& path) {
  const std::string text = text_of_file(path);
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
  std::vector<std::string> names;
  std::map<std::string, std::vector<std::string>> columns;
  for (std::string line; std::getline(lines, line);) {
    const bool header = names.empty();
    std::istringstream fields(line + ",");
    std::string field;
    for (std::size_t i = 0; std::getline(fields, field, ','); ++i) {
      if (header) {
        names.push_back(field);
        columns[field];
      } else {
        columns[names.at(i)].push_back(field);
      }
    }
  }
  return columns;
}

std::int64_t last_recorded_step(const std::string& path) {
  const auto columns = metrics_columns(path);
  const auto steps = columns.find("step");
  if (steps == columns.end() || steps->second.empty()) return 0;
  return std::stol(steps->second.back());
}

std::int64_t last_logged_step(const std::string& path) {
  const std::vector<std::string> steps = logged_steps(path);
  return steps.empty() ? 0 : std::stol(steps.back());
}

std::optional<std::int64_t> resumed_step(const std::string& output) {
  static const std::regex kLine("resuming after step ([0-9]+) from");
  std::smatch match;
  if (!std::regex_search(output, match, kLine)) return std::nullopt;
  return std::stol(match[1]);
}

}  // namespace pleat::test
