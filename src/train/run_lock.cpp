// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/run_lock.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <unistd.h>

#include "pleat/base/error.hpp"
#include "pleat/base/host.hpp"
#include "pleat/train/run_folder.hpp"

namespace pleat::train {
namespace {

/// "host node17, process 4242, Slurm job 991, since 2026-11-28 06:00:12 UTC".
std::string this_process() {
  const std::string job = batch_job();
  return fmt::format("host {}, process {}, {}{}since {:%Y-%m-%d %H:%M:%S} UTC",
                     host_name(), getpid(), job, job.empty() ? "" : ", ",
                     fmt::gmtime(std::time(nullptr)));
}

/// What the holder wrote. It does so just after it has got the lock.
std::string holder_of(const std::string& path) {
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  std::ifstream file(path);
  std::string holder;
  std::getline(file, holder);
  return holder.empty() ? "another process" : holder;
}

/// A lock of the open file, which closing any other descriptor of it does not release.
/// \return 0 or errno
int lock_file(int descriptor, int kind) {
  struct flock whole {};
  whole.l_type = static_cast<short>(kind);
  whole.l_whence = SEEK_SET;
  return fcntl(descriptor, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
}

}  // namespace

RunLock::RunLock(const std::string& folder, Log& log) {
  const std::string path = RunFolder(folder).lock();
  file_ = io::FileDescriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  // Of another user: a lock for reading, too, meets the one of a job that works here.
  const bool only_read = file_.get() < 0 && errno == EACCES;
  if (only_read) file_ = io::FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const int error =
      file_.get() < 0 ? errno : lock_file(file_.get(), only_read ? F_RDLCK : F_WRLCK);
  PLEAT_REQUIRE(file_.get() < 0 || (error != EAGAIN && error != EACCES), InputError,
                "PL0731",
                "another job works in the run folder '{}': {}\n"
                "HINT: wait for its end or cancel it, or choose another run.output.",
                folder, holder_of(path));
  if (error != 0) {
    log.warn("the run folder '{}' cannot be locked against a second job: {}", folder,
             std::strerror(error));
    return;
  }
  if (only_read) return;
  const std::string text = this_process() + "\n";
  if (ftruncate(file_.get(), 0) != 0 ||
      pwrite(file_.get(), text.data(), text.size(), 0) < 0) {
    log.warn("'{}' cannot be written: {}", path, std::strerror(errno));
  }
}

}  // namespace pleat::train
