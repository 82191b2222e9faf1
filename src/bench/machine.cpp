// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "pleat/base/processor.hpp"
#include "pleat/base/host.hpp"
#include "pleat/bench/report.hpp"
#include "pleat/comm/libraries.hpp"
#include "pleat/comm/text.hpp"
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

std::string fact_of_ranks(comm::Communicator& ranks, const std::string& mine) {
  std::vector<std::pair<std::string, int>> counts;  // in the order of the ranks
  for (const std::string& text : comm::all_gather_text(ranks, mine)) {
    const auto known = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& one) { return one.first == text; });
    if (known == counts.end()) {
      counts.emplace_back(text, 1);
    } else {
      ++known->second;
    }
  }
  if (counts.size() == 1) return counts.front().first;
  constexpr std::size_t kMost = 4;
  std::string list;
  for (std::size_t i = 0; i < std::min(kMost, counts.size()); ++i) {
    list += fmt::format("{}{} of {}", i == 0 ? "" : ", ", counts[i].second, counts[i].first);
  }
  if (counts.size() > kMost) list += fmt::format(" and {} more", counts.size() - kMost);
  return list;
}

std::vector<Fact> machine_facts(comm::Communicator& ranks, comm::BackendKind backend) {
  const Processor device = this_processor();
  const std::string nccl = comm::nccl_library();
  return {
      {"program", train::build_description()},
      {"host", fact_of_ranks(ranks, host_name())},
      {"device",
       fact_of_ranks(ranks,
                     fmt::format("{}, {:.1f} GiB, {}", device.name,
                                 static_cast<double>(device.bytes) / (1 << 30),
                                 ExecSpace::name()))},
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
