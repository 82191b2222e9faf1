// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Waiting for what a job does in its folder of checkpoints, to strike at that moment; and
/// what may be lost by it.

#include <chrono>
#include <cstdint>
#include <string>

#include "support/job.hpp"

namespace pleat::test {

/// \brief What is waited for. The bits are those of inotify.
struct Moment {
  const char* name;
  std::uint32_t event;
  const char* file;  ///< end of the file's name
};

/// \brief Events of one folder, from the first call on.
class FolderWatch {
 public:
  explicit FolderWatch(std::string folder);
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  /// \brief Waits until the moment has come so many times. \return false: the job has ended
  bool wait(const Moment& moment, int times, Job& job);

 private:
  bool watches();

  std::string folder_;
  int descriptor_ = -1;
};

/// \brief The least step that a killed run must go on from. It waits for the checkpoint before
/// when it begins one, so the newest complete one is at most an interval older than the newest
/// begun. How many steps were taken beside the writing comes on top of that interval: at the
/// moment at which an asynchronous checkpoint becomes complete they are all still to be lost.
/// \param recorded  the last row of metrics.csv; the checkpoint behind it need not be begun
/// \param every  the interval
std::int64_t least_resumable_step(std::int64_t recorded, std::int64_t every, bool asynchronous);

}  // namespace pleat::test
