// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A job of the program on some ranks that the test watches, stops and kills.

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace pleat::test {

/// \brief How a job ended, and what it printed.
struct JobResult {
  int exit_code = -1;  ///< 128 + signal where a signal ended it
  std::string output;
};

/// \brief What a job is started with.
struct JobSettings {
  std::string program;
  std::string folder;  ///< in which it runs; its output goes to files there
  int ranks = 1;       ///< 1: without a launcher
  std::map<std::string, std::string> environment = {};  ///< of the ranks
};

/// \brief Starts a job at once; ends it when it goes out of scope. Each rank has one thread and
/// preloads tests/support/faults.c.
class Job {
 public:
  Job(const JobSettings& settings, const std::vector<std::string>& arguments);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// \brief Whether it has not ended yet.
  bool runs();
  /// \brief Waits for the end; a job that takes longer is killed and a failure of the test.
  JobResult wait(std::chrono::seconds patience = std::chrono::seconds(120));

  /// \brief The processes of the ranks that run the program by now, in order of rank.
  std::vector<pid_t> ranks() const;
  /// \brief Waits until all ranks run the program.
  std::vector<pid_t> wait_for_ranks();
  /// \brief To one rank, or to all of them. Those that are gone are left out.
  void signal(int number, int rank);
  void signal_all(int number);

  /// \brief Lets the job stop in `step`, after its row is in metrics.csv; before the job gets
  /// there.
  void pause_after(int step) const;
  /// \brief Waits until it is there. \return false if the job ended instead
  bool wait_for_pause(int step);
  void go_on(int step) const;

 private:
  std::string pause_file(const std::string& what, int step) const;
  std::string output() const;

  JobSettings settings_;
  std::string name_;  ///< of its files in the folder
  pid_t launcher_ = -1;
  int status_ = 0;
  bool ended_ = false;
  std::vector<pid_t> seen_;  ///< ranks that were signalled
};

}  // namespace pleat::test
