// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/log.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <unistd.h>

#include <gtest/gtest.h>

#include "pleat/base/error.hpp"

namespace pleat {
namespace {

std::string read_stream(std::FILE* stream) {
  std::rewind(stream);
  std::string text;
  for (int c = std::fgetc(stream); c != EOF; c = std::fgetc(stream)) {
    text.push_back(static_cast<char>(c));
  }
  return text;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class LogTest : public testing::Test {
 protected:
  LogTest() : stream_(std::tmpfile()) {
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("pleat_log_{}.txt", getpid());
  }
  ~LogTest() override {
    std::fclose(stream_);
    std::filesystem::remove(path_);
  }

  std::FILE* stream_;
  std::filesystem::path path_;
};

TEST_F(LogTest, WritesLinesToTheStreamAndToTheFile) {
  {
    Log log(true, stream_);
    log.info("before {}", 1);
    log.open_file(path_.string());
    log.info("loss {:.2f}", 1.5);
    log.warn("slow");
    EXPECT_FALSE(log.interactive());
  }
  EXPECT_EQ(read_stream(stream_), "before 1\nloss 1.50\nWARNING: slow\n");
  EXPECT_EQ(read_file(path_), "loss 1.50\nWARNING: slow\n");
}

TEST_F(LogTest, TheFileOfAnEarlierRunIsContinued) {
  for (const int part : {1, 2}) {
    Log log(true, stream_);
    log.open_file(path_.string());
    log.info("part {}", part);
  }
  EXPECT_EQ(read_file(path_), "part 1\npart 2\n");
}

TEST_F(LogTest, LinesAreInTheFileBeforeTheLogEnds) {
  Log log(true, stream_);
  log.open_file(path_.string());
  log.info("step 1");
  EXPECT_EQ(read_file(path_), "step 1\n");
  log.sync();
}

TEST_F(LogTest, AFullDiskIsAnIoErrorOnceAndTheStreamGoesOn) {
  Log log(true, stream_);
  log.open_file("/dev/full");
  try {
    log.info("one");
    FAIL() << "written";
  } catch (const IoError& error) {
    EXPECT_EQ(error.id(), "PL0104");
    EXPECT_EQ(error.exit_code(), ExitCode::kInputOutput);
    EXPECT_NE(std::string(error.what()).find("/dev/full"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos);
  }
  log.info("two");
  log.sync();
  EXPECT_EQ(read_stream(stream_), "one\ntwo\n");
}

TEST_F(LogTest, OtherRanksAreSilent) {
  {
    Log log(false, stream_);
    log.open_file(path_.string());
    log.info("nothing");
    log.warn("nothing");
    log.progress("nothing");
    EXPECT_FALSE(log.speaks());
  }
  EXPECT_EQ(read_stream(stream_), "");
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(LogTest, ProgressNeverGoesToTheFileAndALineReplacesIt) {
  {
    Log log(true, stream_);
    log.open_file(path_.string());
    log.progress("50 %");
    log.info("step 1");
  }
  EXPECT_EQ(read_file(path_), "step 1\n");
  EXPECT_EQ(read_stream(stream_), "\r\033[K50 %\r\033[Kstep 1\n");
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsNamed) {
  Log log(true, stream_);
  try {
    log.open_file("/nonexistent/folder/log.txt");
    FAIL() << "opened";
  } catch (const IoError& error) {
    EXPECT_EQ(error.id(), "PL0101");
    EXPECT_NE(std::string(error.what()).find("/nonexistent/folder/log.txt"),
              std::string::npos);
    EXPECT_NE(std::string(error.what()).find("HINT: "), std::string::npos);
  }
}

}  // namespace
}  // namespace pleat
