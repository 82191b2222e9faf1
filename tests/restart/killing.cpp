// SPDX-License-Identifier: Apache-2.0
#include "killing.hpp"

#include <array>
#include <string_view>
#include <thread>

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

namespace pleat::test {

using namespace std::chrono_literals;

FolderWatch::FolderWatch(std::string folder)
    : folder_(std::move(folder)), descriptor_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {}

FolderWatch::~FolderWatch() { close(descriptor_); }

bool FolderWatch::watches() {
  constexpr std::uint32_t kEvents =
      IN_CREATE | IN_CLOSE_WRITE | IN_MODIFY | IN_MOVED_TO | IN_DELETE;
  // Again and again: a folder that was set aside is followed by another of its name.
  return inotify_add_watch(descriptor_, folder_.c_str(), kEvents) >= 0;
}

bool FolderWatch::wait(const Moment& moment, int times, Job& job) {
  alignas(inotify_event) std::array<char, 16384> buffer;
  while (job.runs()) {
    if (!watches()) {  // the folder is not there yet
      std::this_thread::sleep_for(200us);
      continue;
    }
    pollfd ready{descriptor_, POLLIN, 0};
    poll(&ready, 1, 5);
    const ssize_t bytes = read(descriptor_, buffer.data(), buffer.size());
    for (ssize_t at = 0; at < bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      const std::string_view name = event->len > 0 ? event->name : "";
      if ((event->mask & moment.event) != 0 && name.ends_with(moment.file) && --times == 0) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace pleat::test
