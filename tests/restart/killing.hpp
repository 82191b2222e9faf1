// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Waiting for what a job does in its folder of checkpoints, to strike at that moment.

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

}  // namespace pleat::test
