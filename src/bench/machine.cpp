// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "pleat/base/processor.hpp"
#include "pleat/base/host.hpp"
#include "pleat/bench/report.hpp"
#include "pleat/comm/libraries.hpp"
#include "pleat/kernels/libraries.hpp"
#include "pleat/train/machine.hpp"

namespace pleat::bench {
namespace {

std::string exchange_path(comm::BackendKind backend) {
  constexpr bool kOnHost =
      Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemSpace>::accessible;
  if (kOnHost) return "MPI, in host memory";
  if (backend == comm::BackendKind::kNccl) return "NCCL (RCCL) between devices";
  return "MPI; arrays of a device are staged through host memory";
}

}  // namespace

std::vector<Fact> machine_facts(const comm::Communicator& ranks,
                                comm::BackendKind backend) {
  const Processor device = this_processor();
  const std::string nccl = comm::nccl_library();
  return {
      {"program", train::build_description()},
      {"host", host_name()},
      {"device",
       fmt::format("{}, {:.1f} GiB, {}", device.name,
                   static_cast<double>(device.bytes) / (1 << 30), ExecSpace::name())},
      {"ranks",
       fmt::format("{}, {} threads each", ranks.size(), ExecSpace().concurrency())},
      {"products fp64", kernels::product_library<double>()},
      {"products fp32", kernels::product_library<float>()},
      {"products bf16", kernels::product_library<Bf16>()},
      {"attention bf16", kernels::attention_library()},
      {"linked", kernels::linked_libraries()},
      {"MPI", comm::mpi_library()},
      {"NCCL", nccl.empty() ? "not compiled in" : nccl},
      {"exchanges", exchange_path(backend)},
  };
}

}  // namespace pleat::bench
