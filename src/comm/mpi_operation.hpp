// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A non-blocking call of MPI, with the memory that must outlive it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <mpi.h>

#include "pleat/comm/pending.hpp"

namespace pleat::comm::detail {

/// \brief Counts and places of the members' parts as MPI takes them.
struct IntParts {
  std::vector<int> counts;
  std::vector<int> places;
};

/// \throws InputError PL0803 when the sum of the counts exceeds an int
IntParts int_parts(std::span<const std::int64_t> counts);

/// \brief Requests under way. Shared by the Pending that waits for them.
struct MpiOperation {
  std::vector<MPI_Request> requests;
  std::vector<MPI_Status> statuses;
  IntParts sent;
  IntParts received;
  std::vector<std::byte> scratch;
};

/// \brief Memory of exchanges that are over, for those to come: a step takes none anew.
class ScratchPool {
 public:
  /// \brief At least that many bytes.
  std::vector<std::byte> take(std::size_t bytes);
  void give_back(std::vector<std::byte> scratch) { free_.push_back(std::move(scratch)); }

 private:
  std::vector<std::vector<std::byte>> free_;
};

/// \brief Waits for all requests and tells whether they are done. While an exception
/// unwinds the stack it gives up after a moment, since the member for which it waits may
/// be waiting for this one in turn; the operation then lives on, as MPI may still write
/// to it.
bool complete(const std::shared_ptr<MpiOperation>& operation);

/// \brief Whether all requests are done, without waiting.
bool is_complete(MpiOperation& operation);

/// \brief Waits with complete().
Pending pending(std::shared_ptr<MpiOperation> operation);

}  // namespace pleat::comm::detail
