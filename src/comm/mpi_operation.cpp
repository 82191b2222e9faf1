// SPDX-License-Identifier: Apache-2.0
#include "mpi_operation.hpp"

#include <chrono>
#include <exception>
#include <limits>
#include <numeric>
#include <thread>

#include "pleat/base/error.hpp"
#include "pleat/comm/check_mpi.hpp"

namespace pleat::comm::detail {

IntParts int_parts(std::span<const std::int64_t> counts) {
  const std::int64_t total =
      std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  PLEAT_REQUIRE(total <= std::numeric_limits<int>::max(), InputError, "PL0803",
                "an exchange of {} elements at once; MPI takes {} at most\n"
                "HINT: take smaller micro-batches (batch.micro) or more ranks.",
                total, std::numeric_limits<int>::max());
  IntParts parts;
  int place = 0;
  for (const std::int64_t count : counts) {
    parts.counts.push_back(static_cast<int>(count));
    parts.places.push_back(place);
    place += static_cast<int>(count);
  }
  return parts;
}

/// The last one given back: sizes repeat in the order of the layers.
std::vector<std::byte> ScratchPool::take(std::size_t bytes) {
  std::vector<std::byte> scratch;
  if (!free_.empty()) {
    scratch = std::move(free_.back());
    free_.pop_back();
  }
  if (scratch.size() < bytes) scratch.resize(bytes);
  return scratch;
}

namespace {

bool complete_within(MpiOperation& operation, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < deadline) {
    int done = 0;
    MPI_Testall(static_cast<int>(operation.requests.size()), operation.requests.data(),
                &done, MPI_STATUSES_IGNORE);
    if (done) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// The error of the request that failed, where MPI tells only that one did.
int code_of(int code, const std::vector<MPI_Status>& statuses) {
  if (code != MPI_ERR_IN_STATUS) return code;
  for (const MPI_Status& status : statuses) {
    const bool failed =
        status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING;
    if (failed) return status.MPI_ERROR;
  }
  return code;
}

}  // namespace

bool complete(const std::shared_ptr<MpiOperation>& operation) {
  constexpr std::chrono::milliseconds kPatience{1000};
  MpiOperation& op = *operation;
  if (std::uncaught_exceptions() > 0) {
    if (complete_within(op, kPatience)) return true;
    new std::shared_ptr<MpiOperation>(operation);  // never freed
    return false;
  }
  op.statuses.resize(op.requests.size());
  const auto count = static_cast<int>(op.requests.size());
  PLEAT_CHECK_MPI(
      code_of(MPI_Waitall(count, op.requests.data(), op.statuses.data()), op.statuses));
  return true;
}

bool is_complete(MpiOperation& operation) {
  operation.statuses.resize(operation.requests.size());
  int done = 0;
  PLEAT_CHECK_MPI(MPI_Testall(static_cast<int>(operation.requests.size()),
                              operation.requests.data(), &done, operation.statuses.data()));
  return done != 0;
}

Pending pending(std::shared_ptr<MpiOperation> operation) {
  return Pending([operation] { complete(operation); },
                 [operation] { return is_complete(*operation); });
}

}  // namespace pleat::comm::detail
