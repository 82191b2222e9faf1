// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/error.hpp"
#include "pleat/train/metrics.hpp"
#include "pleat/train/progress.hpp"

namespace pleat::train {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == ',') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

StepMetrics step_metrics(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 1.0 / 3.0 + static_cast<double>(step);
  return metrics;
}

class MetricsFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("pleat_metrics_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    path_ = (folder_ / "metrics.csv").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// First field of each row below the header.
  std::vector<std::string> steps() const {
    std::ifstream file(path_);
    std::vector<std::string> found;
    std::string line;
    std::getline(file, line);
    EXPECT_EQ(line, metrics_header());
    while (std::getline(file, line)) found.push_back(split(line).front());
    return found;
  }
  void write_steps(std::int64_t resumed, std::int64_t last) {
    MetricsWriter writer(path_, resumed);
    for (std::int64_t step = resumed + 1; step <= last; ++step)
      writer.write(step_metrics(step));
  }

  fs::path folder_;
  std::string path_;
};

TEST(Metrics, HeaderStartsWithTheContract) {
  EXPECT_THAT(
      metrics_header(),
      StartsWith("step,loss,loss_ce,loss_aux,loss_z,learning_rate,grad_norm,tokens,"
                 "tokens_per_second,model_flops,mfu,seconds,peak_memory,"
                 "expert_imbalance,dropped,validation_loss,skipped,rollbacks,"
                 "seconds_checkpoint,seconds_waiting,seconds_data,"));
  EXPECT_THAT(metrics_header(), HasSubstr(",seconds_experts,"));
  EXPECT_EQ(split(metrics_header()).size(), 20U + kPhases);
}

TEST(Metrics, RowHasAFieldForEveryColumn) {
  StepMetrics metrics = step_metrics(7);
  metrics.loss_ce = std::nextafter(2.0, 3.0);
  metrics.loss_aux = 0.1;
  metrics.loss_z = 1e-300;
  metrics.learning_rate = 2.0 / 3.0 * 1e-3;
  metrics.grad_norm = std::sqrt(2.0);
  metrics.tokens = 1234567890123;
  metrics.mfu = 0.5;
  metrics.peak_memory = 987654321;
  metrics.dropped = 3;
  metrics.skipped = 4;
  metrics.rollbacks = 5;
  metrics.seconds_checkpoint = 1.5;
  metrics.seconds_waiting = 0.75;
  metrics.phase_seconds[0] = 0.25;
  const std::vector<std::string> fields = split(metrics_row(metrics));
  ASSERT_EQ(fields.size(), split(metrics_header()).size());
  EXPECT_EQ(fields[0], "7");
  // Round-trip of everything that a comparison may read.
  EXPECT_EQ(std::stod(fields[1]), metrics.loss);
  EXPECT_EQ(std::stod(fields[2]), metrics.loss_ce);
  EXPECT_EQ(std::stod(fields[3]), metrics.loss_aux);
  EXPECT_EQ(std::stod(fields[4]), metrics.loss_z);
  EXPECT_EQ(std::stod(fields[5]), metrics.learning_rate);
  EXPECT_EQ(std::stod(fields[6]), metrics.grad_norm);
  EXPECT_EQ(fields[7], "1234567890123");
  EXPECT_EQ(fields[10], "0.5");
  EXPECT_EQ(fields[12], "987654321");
  EXPECT_EQ(fields[14], "3");
  EXPECT_EQ(fields[16], "4");
  EXPECT_EQ(fields[17], "5");
  EXPECT_EQ(fields[18], "1.5");
  EXPECT_EQ(fields[19], "0.75");
  EXPECT_EQ(fields[20], "0.25");
}

TEST(Metrics, WhatWasNotMeasuredIsEmpty) {
  StepMetrics metrics = step_metrics(1);
  EXPECT_EQ(split(metrics_row(metrics))[10], "");
  EXPECT_EQ(split(metrics_row(metrics))[15], "");
  metrics.validation_loss = 1.25;
  EXPECT_EQ(split(metrics_row(metrics))[15], "1.25");
}

TEST_F(MetricsFile, NewRunReplacesTheFile) {
  write_steps(0, 5);
  write_steps(0, 2);
  EXPECT_THAT(steps(), ElementsAre("1", "2"));
}

TEST_F(MetricsFile, RowsAreThereBeforeTheWriterEnds) {
  MetricsWriter writer(path_, 0);
  writer.write(step_metrics(1));
  EXPECT_THAT(steps(), ElementsAre("1"));
}

TEST_F(MetricsFile, ResumeCutsLaterStepsAndContinuesWithoutGap) {
  write_steps(0, 8);
  const std::string uninterrupted = text();
  write_steps(5, 8);
  EXPECT_EQ(text(), uninterrupted);
}

TEST_F(MetricsFile, TornLastLineIsCutOff) {
  write_steps(0, 3);
  const std::string whole = text();
  // A kill after any number of bytes of row 3.
  const std::size_t row3 = whole.rfind('\n', whole.size() - 2) + 1;
  for (std::size_t length = row3; length < whole.size(); ++length) {
    std::ofstream(path_, std::ios::trunc) << whole.substr(0, length);
    write_steps(3, 3);
    ASSERT_THAT(steps(), ElementsAre("1", "2")) << "torn at " << length;
  }
}

TEST_F(MetricsFile, ResumeWithoutFileOrWithAnEmptyOneStartsIt) {
  write_steps(3, 4);
  EXPECT_THAT(steps(), ElementsAre("4"));
  std::ofstream(path_, std::ios::trunc).flush();
  write_steps(3, 5);
  EXPECT_THAT(steps(), ElementsAre("4", "5"));
}

// A version without skipped, rollbacks and seconds_checkpoint, and one with few columns.
TEST_F(MetricsFile, FileWithFewerColumnsGoesOnWithEmptyFields) {
  std::ofstream(path_) << "step,loss,validation_loss,seconds_data\n1,2.5,,0.25\n2,1.5,4,0.5\n";
  write_steps(2, 3);
  EXPECT_THAT(steps(), ElementsAre("1", "2", "3"));
  EXPECT_FALSE(fs::exists(path_ + ".old"));
  std::ifstream file(path_);
  std::string line;
  std::getline(file, line);
  std::getline(file, line);
  std::getline(file, line);
  const std::vector<std::string> fields = split(line);
  ASSERT_EQ(fields.size(), split(metrics_header()).size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::string name = split(metrics_header())[i];
    const bool has = name == "step" || name == "loss" || name == "validation_loss" ||
                     name == "seconds_data";
    EXPECT_EQ(fields[i].empty(), !has) << name;
  }
  EXPECT_EQ(fields[1], "1.5");
  EXPECT_EQ(fields[15], "4");
  EXPECT_EQ(fields[20], "0.5");
}

TEST_F(MetricsFile, TornRowOfAFileWithFewerColumnsGoes) {
  std::ofstream(path_) << "step,loss\n1,2.5\n2\n3,1.0,7\n";
  write_steps(3, 4);
  EXPECT_THAT(steps(), ElementsAre("1", "4"));
}

TEST_F(MetricsFile, RewindDropsLaterRowsAndGoesOn) {
  MetricsWriter writer(path_, 0);
  for (std::int64_t step = 1; step <= 6; ++step) writer.write(step_metrics(step));
  const std::string six = text();
  writer.rewind(4);
  EXPECT_THAT(steps(), ElementsAre("1", "2", "3", "4"));
  for (std::int64_t step = 5; step <= 6; ++step) writer.write(step_metrics(step));
  EXPECT_EQ(text(), six);
  writer.rewind(0);
  EXPECT_THAT(steps(), testing::IsEmpty());
  writer.write(step_metrics(1));
  writer.sync();
  EXPECT_THAT(steps(), ElementsAre("1"));
}

TEST_F(MetricsFile, RowsSurviveAKilledProcess) {
  const pid_t child = fork();
  if (child == 0) {
    MetricsWriter writer(path_, 0);
    for (std::int64_t step = 1; step <= 20; ++step) writer.write(step_metrics(step));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(steps().size(), 20U);
}

TEST_F(MetricsFile, FileWithUnknownColumnsIsKept) {
  std::ofstream(path_) << "step,loss,mood\n1,2.5,good\n";
  write_steps(1, 2);
  EXPECT_THAT(steps(), ElementsAre("2"));
  EXPECT_TRUE(fs::exists(path_ + ".old"));
}

TEST_F(MetricsFile, LeavesNoTemporaryFile) {
  write_steps(0, 1);
  EXPECT_FALSE(fs::exists(path_ + ".tmp"));
}

TEST_F(MetricsFile, MissingFolderIsBadInput) {
  try {
    const MetricsWriter writer((folder_ / "no" / "metrics.csv").string(), 0);
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(error.id(), "PL0701");
  }
}

/// A limit on the size of files stands in for a full disk.
class FullDisk {
 public:
  explicit FullDisk(std::size_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit full{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

std::string io_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kInputOutput);
    return error.id();
  }
  return "none";
}

TEST_F(MetricsFile, FullDiskIsAnIoError) {
  {
    MetricsWriter writer(path_, 0);
    const FullDisk full(metrics_header().size() + 3);
    EXPECT_EQ(io_error_of([&] { writer.write(step_metrics(1)); }), "PL0702");
  }
  // The torn row does no harm to the run that continues.
  write_steps(1, 2);
  EXPECT_THAT(steps(), ElementsAre("2"));
}

TEST_F(MetricsFile, FullDiskWhileARunContinuesLosesNoRow) {
  write_steps(0, 5);
  const std::string before = text();
  {
    const FullDisk full(before.size() / 2);
    EXPECT_EQ(io_error_of([&] { const MetricsWriter writer(path_, 5); }), "PL0702");
  }
  EXPECT_EQ(text(), before);
  MetricsWriter writer(path_, 5);
  {
    const FullDisk full(before.size() / 2);
    EXPECT_EQ(io_error_of([&] { writer.rewind(4); }), "PL0702");
  }
  EXPECT_EQ(text(), before);
}

TEST(ExpertImbalance, LargestOverMean) {
  const double balanced[] = {5, 5, 5, 5};
  const double one[] = {0, 8, 0, 0};
  const double none[] = {0, 0};
  EXPECT_DOUBLE_EQ(expert_imbalance(balanced, 4), 1.0);
  EXPECT_DOUBLE_EQ(expert_imbalance(one, 4), 4.0);
  EXPECT_DOUBLE_EQ(expert_imbalance(none, 2), 0.0);
}

TEST(PeakMemory, GrowsWithWhatIsTouched) {
  const std::int64_t before = peak_memory_bytes();
  ASSERT_GT(before, 0);
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  std::vector<char> touched(kBytes, 1);
  EXPECT_EQ(touched[kBytes / 2], 1);
  EXPECT_GE(peak_memory_bytes(), before);
  EXPECT_GE(peak_memory_bytes(), static_cast<std::int64_t>(kBytes));
}

TEST(Format, Durations) {
  EXPECT_EQ(format_duration(0.4), "0 s");
  EXPECT_EQ(format_duration(59.4), "59 s");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(3753.0), "1:02:33");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600 + 11 * 60), "2 d 03:11");
}

TEST(Format, Counts) {
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(1234), "1.23k");
  EXPECT_EQ(format_count(999.7), "1k");
  EXPECT_EQ(format_count(45.64e6), "45.6M");
}

TEST(Sparkline, FallingLine) {
  const std::vector<double> values{7, 6, 5, 4, 3, 2, 1, 0};
  EXPECT_EQ(sparkline(values, 8), "█▇▆▅▄▃▂▁");
  EXPECT_EQ(sparkline(values, 4), "█▆▃▁");
  EXPECT_EQ(sparkline(values, 100), "█▇▆▅▄▃▂▁");
}

TEST(Sparkline, FlatEmptyAndNotANumber) {
  EXPECT_EQ(sparkline({}, 10), "");
  const std::vector<double> flat{2, 2, 2};
  EXPECT_EQ(sparkline(flat, 10), "▁▁▁");
  const std::vector<double> broken{0, NAN, 1};
  EXPECT_EQ(sparkline(broken, 10), "▁x█");
}

TEST(Progress, EstimatesTheTimeLeft) {
  Progress progress(100);
  for (int step = 51; step <= 60; ++step) progress.add(step, 2.0);
  EXPECT_DOUBLE_EQ(progress.seconds_left(), 80.0);
  StepMetrics metrics = step_metrics(60);
  metrics.loss = 2.5;
  const std::string line = progress.line(metrics, true);
  EXPECT_THAT(line, StartsWith("step 60/100 [============>       ]  loss 2.5000"));
  EXPECT_THAT(line, HasSubstr("ETA 1:20"));
  EXPECT_THAT(progress.line(metrics, false), StartsWith("step 60/100  loss"));
}

}  // namespace
}  // namespace pleat::train
