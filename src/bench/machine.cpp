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

/// Every rank's text, cut to as many bytes as hosts and devices have names.
std::vector<std::string> gather_texts(comm::Communicator& ranks, const std::string& mine) {
  constexpr std::size_t kBytes = 256;
  HostView<std::uint8_t, 1> mine_N("pleat::bench::fact", kBytes);
  std::copy_n(mine.begin(), std::min(mine.size(), kBytes), mine_N.data());
  HostView<std::uint8_t, 1> all_PN("pleat::bench::facts",
                                   kBytes * static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(mine_N, all_PN);
  std::vector<std::string> texts;
  for (const std::uint8_t* text = all_PN.data(); text != all_PN.data() + all_PN.size();
       text += kBytes) {
    texts.emplace_back(text, std::find(text, text + kBytes, std::uint8_t{0}));
  }
  return texts;
}

}  // namespace

std::string fact_of_ranks(comm::Communicator& ranks, const std::string& mine) {
  std::vector<std::pair<std::string, int>> counts;  // in the order of the ranks
  for (const std::string& text : gather_texts(ranks, mine)) {
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
