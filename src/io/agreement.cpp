// SPDX-License-Identifier: Apache-2.0
#include "agreement.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "byte_archive.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/failure.hpp"
#include "pleat/comm/check_mpi.hpp"

namespace pleat::io {

namespace {

constexpr std::uint64_t kPortion = 1 << 30;  // MPI counts in int

void broadcast_from(int root, MPI_Comm comm, std::string& bytes) {
  std::uint64_t size = bytes.size();
  PLEAT_CHECK_MPI(MPI_Bcast(&size, 1, MPI_UINT64_T, root, comm));
  bytes.resize(size);
  for (std::uint64_t done = 0; done < size; done += kPortion) {
    const auto count = static_cast<int>(std::min(kPortion, size - done));
    PLEAT_CHECK_MPI(MPI_Bcast(bytes.data() + done, count, MPI_CHAR, root, comm));
  }
}

/// Exit code, identifier and text without the identifier.
std::string pack_failure(const std::exception_ptr& failure) {
  const Failure described = describe_failure(failure);
  const std::size_t colon = described.message.find(": ");
  ByteWriter bytes;
  bytes.put(static_cast<int>(described.exit_code));
  bytes.put(described.message.substr(0, colon));
  bytes.put(described.message.substr(colon + 2));
  return bytes.take();
}

[[noreturn]] void throw_packed(const std::string& packed) {
  ByteReader bytes(packed);
  const auto code = static_cast<ExitCode>(bytes.get<int>());
  const auto id = bytes.get<std::string>();
  const auto text = bytes.get<std::string>();
  if (code == ExitCode::kBadInput) throw InputError(id, text);
  if (code == ExitCode::kInputOutput) throw IoError(id, text);
  throw InternalError(id, text);
}

}  // namespace

void throw_alike(MPI_Comm comm, const std::exception_ptr& mine) {
  int rank = 0;
  PLEAT_CHECK_MPI(MPI_Comm_rank(comm, &rank));
  constexpr int kNone = std::numeric_limits<int>::max();
  int first = mine ? rank : kNone;
  PLEAT_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm));
  if (first == kNone) return;
  std::string packed;
  if (rank == first) packed = pack_failure(mine);
  broadcast_from(first, comm, packed);
  throw_packed(packed);
}

std::exception_ptr failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void on_first_rank(MPI_Comm comm, const std::function<void()>& work) {
  int rank = 0;
  PLEAT_CHECK_MPI(MPI_Comm_rank(comm, &rank));
  std::exception_ptr failure;
  if (rank == 0) failure = failure_of(work);
  throw_alike(comm, failure);
}

int ranks_of(MPI_Comm comm) {
  int ranks = 1;
  PLEAT_CHECK_MPI(MPI_Comm_size(comm, &ranks));
  return ranks;
}

int hosts_of(MPI_Comm comm) {
  MPI_Comm host = MPI_COMM_NULL;
  PLEAT_CHECK_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
  int rank = 0;
  PLEAT_CHECK_MPI(MPI_Comm_rank(host, &rank));
  PLEAT_CHECK_MPI(MPI_Comm_free(&host));
  int hosts = rank == 0 ? 1 : 0;
  PLEAT_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &hosts, 1, MPI_INT, MPI_SUM, comm));
  return hosts;
}

void broadcast(MPI_Comm comm, std::string& bytes) { broadcast_from(0, comm, bytes); }

}  // namespace pleat::io
