// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What moves the data of a communicator. Counts have an entry per member and have
/// been checked against the views; pointers are to host memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <mpi.h>

#include "pleat/comm/communicator.hpp"

namespace pleat::comm {
namespace detail {

class Backend {
 public:
  using Counts = std::span<const std::int64_t>;

  virtual ~Backend() = default;
  virtual void barrier() = 0;
  virtual std::unique_ptr<Communicator> split(int colour, const std::string& label) = 0;
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

}  // namespace detail

/// \brief The communicator over a handle that it frees; the handle of a single rank is
/// freed at once.
std::unique_ptr<Communicator> adopt_mpi_communicator(MPI_Comm handle,
                                                     const std::string& label);

}  // namespace pleat::comm
