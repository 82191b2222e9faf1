// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/runtime.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include <Kokkos_Core.hpp>

#include "pleat/base/device.hpp"
#include "pleat/base/failure.hpp"
#include "pleat/base/warning.hpp"

namespace pleat {
namespace {

using std::chrono::milliseconds;

/// Launchers drop what they have not yet read of a killed rank's output.
constexpr milliseconds kTimeToForward{200};
/// What the first rank may come later than another one to the failure that both see.
constexpr milliseconds kHeadStart{1500};
/// Where many ranks fail, but not the first one, the next to speak finds the job ended.
constexpr milliseconds kStagger{350};
constexpr int kMostStaggered = 12;
/// The end of a process that cannot even end the job.
constexpr unsigned kLastResortSeconds = 9;

/// The failure under way; PL0102 where there is no memory left to describe another.
Failure current_failure() {
  try {
    return describe_failure(std::current_exception());
  } catch (...) {
    return {};
  }
}

bool is_out_of_memory(const Failure& failure) {
  return failure.message.empty() || failure.message.starts_with("PL0102:");
}

/// Takes no memory: there may be none. \param ranks  of the job; 1: none is named
void print_failure(const Failure& failure, int rank = 0, int ranks = 1) {
  const char* const message =
      failure.message.empty() ? kOutOfMemory : failure.message.c_str();
  std::fflush(stdout);
  if (ranks > 1) {
    std::fprintf(stderr, "pleat: rank %d of %d: %s\n", rank, ranks, message);
  } else {
    std::fprintf(stderr, "pleat: %s\n", message);
  }
  std::fflush(stderr);
}

/// MPI's own words about the abort would follow the message.
void silence_stderr() {
  const int nowhere = open("/dev/null", O_WRONLY);
  if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
}

/// The first rank speaks and ends the job. The others wait before they do so, and are
/// ended meanwhile when they fail for the same reason.
[[noreturn]] void end_job(const Failure& failure) {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank > 0) {
    std::this_thread::sleep_for(kHeadStart + std::min(rank, kMostStaggered) * kStagger);
  }
  print_failure(failure, rank, ranks);
  const int code = static_cast<int>(failure.exit_code);
  if (ranks > 1) {
    std::this_thread::sleep_for(kTimeToForward);
    silence_stderr();
    MPI_Abort(MPI_COMM_WORLD, code);
  }
  std::_Exit(code);
}

/// The terminate handler: on whatever thread, and with the stack still standing, when no
/// one catches the exception. Only the first failure of a process counts.
[[noreturn]] void on_terminate() {
  static std::atomic_flag failing = ATOMIC_FLAG_INIT;
  while (failing.test_and_set()) pause();
  alarm(kLastResortSeconds);
  int started = 0;
  int ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  const Failure failure = current_failure();
  if (started && !ended) end_job(failure);
  print_failure(failure);
  std::_Exit(static_cast<int>(failure.exit_code));
}

}  // namespace

Runtime::Runtime(int& argc, char**& argv) {
  std::set_terminate(on_terminate);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  // A failure of MPI is told as any other. Those of requests go to these two handlers,
  // whatever communicator the requests are of.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  set_rank_of_warnings(rank_, ranks_);
}

void Runtime::start_kokkos() {
  require_device();
  Kokkos::InitializationSettings settings;
  settings.set_disable_warnings(true);
  Kokkos::initialize(settings);
  has_kokkos_ = true;
}

Runtime::~Runtime() {
  if (has_kokkos_) Kokkos::finalize();
  MPI_Finalize();
}

MPI_Comm Runtime::world() const { return MPI_COMM_WORLD; }

int Runtime::run(const std::function<int()>& work) const {
  const auto work_and_tell = [&work] {
    const int code = work();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw unwritable_output();
    return code;
  };
  if (ranks_ > 1) return work_and_tell();
  try {
    return work_and_tell();
  } catch (...) {
    const Failure failure = current_failure();
    print_failure(failure);
    // HDF5 crashes in MPI_Finalize when it holds a file whose last writes failed, and MPI
    // has words of its own where it lacks memory.
    if (failure.exit_code == ExitCode::kInputOutput || is_out_of_memory(failure)) {
      std::_Exit(static_cast<int>(failure.exit_code));
    }
    return static_cast<int>(failure.exit_code);
  }
}

}  // namespace pleat
