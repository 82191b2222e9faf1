// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What moves the data of a communicator. Counts have an entry per member and have
/// been checked against the views.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <mpi.h>

#include "pleat/comm/backend_choice.hpp"
#include "pleat/comm/communicator.hpp"

namespace pleat::comm {
namespace detail {

bool all_alike(std::span<const std::int64_t> counts);

/// \brief Moves data in one kind of memory.
class Backend {
 public:
  using Counts = std::span<const std::int64_t>;

  virtual ~Backend() = default;
  virtual Pending all_reduce(void* data, std::size_t count, Element element,
                             Reduction reduction) = 0;
  virtual Pending broadcast(void* data, std::size_t count, Element element, int root) = 0;
  /// The member's own part is already in `out`.
  virtual Pending all_gather(void* out, Counts counts, Element element) = 0;
  /// `out` may be the member's own part of `in`.
  virtual Pending reduce_scatter(const void* in, void* out, Counts counts,
                                 Element element) = 0;
  virtual Pending all_to_all(const void* in, Counts send_counts, void* out,
                             Counts recv_counts, Element element) = 0;
  virtual Pending send(const void* data, std::size_t count, Element element, int to,
                       int tag) = 0;
  virtual Pending receive(void* data, std::size_t count, Element element, int from,
                          int tag) = 0;
};

/// \brief Moves data in host memory, and brings the members together.
class HostBackend : public Backend {
 public:
  virtual void barrier() = 0;
  /// The group of this rank's colour, for adopt_mpi_communicator.
  virtual MPI_Comm split(int colour) = 0;
};

/// \brief NCCL or RCCL among `members`, which is read here only. Operations begin after
/// the work that ExecSpace has queued; wait() queues: later work of ExecSpace comes after
/// the exchange. Collective. \param messages  whether the members send() to their
/// neighbours \throws InternalError PL0811, PL0812, and PL0100 where it is not compiled
/// in
std::unique_ptr<Backend> make_nccl_backend(MPI_Comm members, const std::string& label,
                                           bool messages);

/// \brief The bus address of this rank's GPU; empty without one.
std::string device_address();

}  // namespace detail

/// \brief How the members of a group reach each other's devices.
struct Transport {
  BackendKind kind = BackendKind::kMpi;
  bool messages = false;  ///< send() and receive() of device memory between neighbours
};

/// \brief The communicator over a handle that it frees; the handle of a single rank is
/// freed at once.
std::unique_ptr<Communicator> adopt_mpi_communicator(MPI_Comm handle,
                                                     const std::string& label,
                                                     const Transport& transport = {});

}  // namespace pleat::comm
