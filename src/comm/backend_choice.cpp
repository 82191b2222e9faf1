// SPDX-License-Identifier: Apache-2.0
#include "pleat/comm/backend_choice.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "backend.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/host.hpp"
#include "pleat/base/random.hpp"
#include "pleat/comm/check_mpi.hpp"

namespace pleat::comm {
namespace {

#ifdef PLEAT_HAVE_NCCL
constexpr bool kHasNccl = true;
#else
constexpr bool kHasNccl = false;
#endif
constexpr bool kOnGpu =
    !Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemSpace>::accessible;

std::string what_is_missing() {
  if (kOnGpu) return "this build was configured without NCCL (or RCCL)";
  return fmt::format("this build keeps its arrays in host memory (execution space {})",
                     ExecSpace::name());
}

bool ranks_share_a_device(MPI_Comm world) {
  int ranks = 1;
  PLEAT_CHECK_MPI(MPI_Comm_size(world, &ranks));
  const std::uint64_t mine = hash_name(host_name() + " " + detail::device_address());
  std::vector<std::uint64_t> all(static_cast<std::size_t>(ranks));
  PLEAT_CHECK_MPI(
      MPI_Allgather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, world));
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) != all.end();
}

}  // namespace

const char* backend_name(BackendKind kind) {
  switch (kind) {
    case BackendKind::kAuto:
      return "auto";
    case BackendKind::kMpi:
      return "mpi";
    case BackendKind::kNccl:
      return "nccl";
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown back end");
}

BackendKind choose_backend(BackendKind wanted, MPI_Comm world) {
  const bool must = wanted == BackendKind::kNccl;
  PLEAT_REQUIRE(!must || kHasNccl, InputError, "PL0805",
                "parallel.backend = \"nccl\", but {}\n"
                "HINT: build for a GPU where CMake finds NCCL (nccl.h and libnccl; "
                "NCCL_ROOT names another place), or set parallel.backend = \"auto\".",
                what_is_missing());
  int ranks = 1;
  PLEAT_CHECK_MPI(MPI_Comm_size(world, &ranks));
  if (ranks == 1 || !(must || (wanted == BackendKind::kAuto && kHasNccl && kOnGpu)))
    return BackendKind::kMpi;
  const bool shared = ranks_share_a_device(world);
  PLEAT_REQUIRE(
      !must || !shared, InputError, "PL0806",
      "parallel.backend = \"nccl\", but several ranks of a node use the same GPU\n"
      "HINT: start one rank per GPU, or set parallel.backend = \"mpi\".");
  return shared ? BackendKind::kMpi : BackendKind::kNccl;
}

}  // namespace pleat::comm
