// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A program of which some ranks fail while the others wait for them.
///
///     failing_rank KIND RANK      RANK -1: every rank; -2: every rank but the first

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "pleat/base/error.hpp"
#include "pleat/base/runtime.hpp"
#include "pleat/comm/communicator.hpp"

namespace {

using pleat::HostView;
using pleat::comm::Communicator;
using pleat::comm::Pending;
using pleat::comm::Reduction;

void fail(const std::string& kind, const Communicator& group) {
  if (kind == "input") PLEAT_FAIL(InputError, "PL0203", "a bad key");
  if (kind == "numerical") PLEAT_FAIL(NumericalError, "PL0701", "a loss of nan");
  if (kind == "io") PLEAT_FAIL(IoError, "PL0301", "a full disk");
  if (kind == "foreign") throw std::runtime_error("something else");
  if (kind == "number") throw 42;
  if (kind == "allocation") {
    const std::size_t huge = std::numeric_limits<std::size_t>::max() / 4;
    static_cast<void>(::operator new(huge + static_cast<std::size_t>(group.rank())));
  }
  if (kind == "view") {
    const HostView<double, 1> huge("huge", std::size_t{1} << 52);
  }
  if (kind == "terminate") std::terminate();
  if (kind == "kill") std::raise(SIGKILL);
  if (kind == "segmentation") std::raise(SIGSEGV);
}

// The exception leaves a scope with a receive under way that never ends.
void fail_with_exchange_under_way(Communicator& group) {
  const HostView<double, 1> x_N("x", 4);
  const int other = group.rank() == 0 ? 1 : 0;
  try {
    const Pending never = group.receive(x_N, other, 7);
    fail("input", group);
  } catch (const pleat::InputError& error) {
    PLEAT_FAIL(InputError, error.id(), "caught on the way");
  }
}

int work(const pleat::Runtime& runtime, const std::string& kind, int which) {
  const auto group = pleat::comm::make_mpi_communicator(runtime.world());
  std::printf("rank %d started\n", group->rank());
  std::fflush(stdout);
  group->barrier();
  const bool mine =
      which == -1 || which == group->rank() || (which == -2 && group->rank());
  if (mine && kind == "thread") {
    std::thread([&] { fail("numerical", *group); }).join();
  } else if (mine && kind == "under_way") {
    fail_with_exchange_under_way(*group);
  } else if (mine) {
    fail(kind, *group);
  }
  group->all_reduce_value(1.0, Reduction::kSum);
  return kind == "none" ? 0 : 99;
}

}  // namespace

int main(int argc, char** argv) {
  pleat::Runtime runtime(argc, argv);
  runtime.start_kokkos();
  return runtime.run([&] { return work(runtime, argv[1], std::atoi(argv[2])); });
}
