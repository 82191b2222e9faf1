// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Collectives over a group of ranks: the one interface through which every
/// exchange of the program goes.
///
/// Legend: P members of the group, N elements of one member, M and R sums of counts.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <mpi.h>

#include "pleat/base/types.hpp"
#include "pleat/comm/element.hpp"
#include "pleat/comm/pending.hpp"
#include "pleat/comm/traffic.hpp"

namespace pleat::comm {

namespace detail {
class Backend;
}

/// \brief A group of ranks.
///
/// Every member function but rank(), size(), label(), traffic() and exchange_under_way() is
/// collective: all members call it, in the same order, except send() and receive(), which
/// pair up. Sums
/// are formed in the same order each time and have the same bits on every member.
///
/// Views are flat, rank 1, and may lie on a device: they are staged through host memory
/// where the host cannot reach them. Operations wait for `exec`-queued work by a fence
/// before they read, and a blocking operation has finished when it returns. The start_
/// variants return while the exchange is under way. A group of one copies or does
/// nothing, without a fence.
///
/// \throws InputError PL0803 for counts that MPI cannot hold, InternalError PL0100 for
/// views that do not fit the counts, PL0810 when MPI fails
class Communicator {
 public:
  /// \brief Called by the functions that make communicators. \param backend  moves the
  /// data; none in a group of one
  Communicator(std::string label, int rank, int size,
               std::unique_ptr<detail::Backend> backend);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// \brief The axes that the group runs along, e.g. "data*context"; for messages and
  /// tables.
  const std::string& label() const { return label_; }
  void barrier();
  /// \brief Members of one colour form a group, in the order of their ranks here.
  std::unique_ptr<Communicator> split(int colour, const std::string& label);
  /// \brief What this rank has sent through this object so far.
  const Traffic& traffic() const { return traffic_; }
  /// \brief The exchange that this rank is blocked in, such as "all_reduce", or null. Any
  /// thread may ask.
  const char* exchange_under_way() const { return waiting_->exchange(); }

  /// \brief x_N = sum or maximum of every member's x_N, on every member. Not in bf16.
  template <class View>
  void all_reduce(const View& x_N, Reduction reduction) {
    start_all_reduce(x_N, reduction).wait();
  }
  template <class View>
  [[nodiscard]] Pending start_all_reduce(const View& x_N, Reduction reduction);
  /// \brief The sum or maximum of a single value.
  template <class T>
  T all_reduce_value(T value, Reduction reduction) {
    if (size_ > 1) reduce_host(&value, 1, element_of<T>(), reduction).wait();
    return value;
  }

  /// \brief x_N = the root's x_N, on every member.
  template <class View>
  void broadcast(const View& x_N, int root);

  /// \brief out_PN = every member's in_N, in rank order. in_N may be this member's own
  /// part of out_PN.
  template <class In, class Out>
  void all_gather(const In& in_N, const Out& out_PN) {
    start_all_gather(in_N, out_PN).wait();
  }
  template <class In, class Out>
  [[nodiscard]] Pending start_all_gather(const In& in_N, const Out& out_PN);
  /// \brief The same with counts[p] elements from member p.
  template <class In, class Out>
  void all_gather_v(const In& in_N, const Out& out_M,
                    std::span<const std::int64_t> counts);

  /// \brief out_N = this member's part of the sum of every in_PN. out_N may be this
  /// member's own part of in_PN; the rest of in_PN is then undefined. Numbers in bf16 are
  /// added in fp32, in rank order, and rounded once.
  template <class In, class Out>
  void reduce_scatter(const In& in_PN, const Out& out_N) {
    start_reduce_scatter(in_PN, out_N).wait();
  }
  template <class In, class Out>
  [[nodiscard]] Pending start_reduce_scatter(const In& in_PN, const Out& out_N);
  /// \brief The same with counts[p] elements for member p.
  template <class In, class Out>
  void reduce_scatter_v(const In& in_M, const Out& out_N,
                        std::span<const std::int64_t> counts);

  /// \brief Member p gets send_counts[p] elements of in_M, which lie in rank order; out_R
  /// holds recv_counts[p] elements from member p, in rank order.
  template <class In, class Out>
  void all_to_all_v(const In& in_M, std::span<const std::int64_t> send_counts,
                    const Out& out_R, std::span<const std::int64_t> recv_counts) {
    start_all_to_all_v(in_M, send_counts, out_R, recv_counts).wait();
  }
  template <class In, class Out>
  [[nodiscard]] Pending start_all_to_all_v(const In& in_M,
                                           std::span<const std::int64_t> send_counts,
                                           const Out& out_R,
                                           std::span<const std::int64_t> recv_counts);

  /// \brief To and from one other member; messages of one pair and tag arrive in order.
  /// wait() of a receive throws InternalError PL0804 when another number of elements
  /// came.
  template <class View>
  [[nodiscard]] Pending send(const View& x_N, int to, int tag);
  template <class View>
  [[nodiscard]] Pending receive(const View& x_N, int from, int tag);

 private:
  using Counts = std::span<const std::int64_t>;

  template <class In, class Out>
  Pending gather_views(const In& in_N, const Out& out_M, Counts counts);
  template <class In, class Out>
  Pending scatter_views(const In& in_M, const Out& out_N, Counts counts);

  // The same operations on host memory: checked, counted and handed to the back end.
  Pending reduce_host(void* data, std::size_t count, Element element,
                      Reduction reduction);
  Pending broadcast_host(void* data, std::size_t count, Element element, int root);
  Pending gather_host(void* out, Counts counts, Element element);
  Pending scatter_host(const void* in, void* out, Counts counts, Element element);
  Pending exchange_host(const void* in, Counts send_counts, void* out, Counts recv_counts,
                        Element element);
  Pending send_host(const void* data, std::size_t count, Element element, int to,
                    int tag);
  Pending receive_host(void* data, std::size_t count, Element element, int from, int tag);

  // Both throw InternalError PL0100 unless there is a count for each member and the views
  // have the sizes; the second returns the place of this member's part.
  void check_total(Counts counts, std::size_t whole) const;
  std::int64_t checked_offset(Counts counts, std::size_t part, std::size_t whole) const;
  void count_traffic(Exchange exchange, double bytes);
  Pending shown(Pending pending, Exchange exchange) const;

  std::string label_;
  int rank_;
  int size_;
  Traffic traffic_;
  /// Shared with exchanges under way, which may outlive this object.
  std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
  std::unique_ptr<detail::Backend> backend_;
};

/// \brief The group of this rank alone.
std::unique_ptr<Communicator> make_self_communicator(const std::string& label = "self");

/// \brief A group with the members and the order of `parent`, in a context of its own
/// that is freed with the object. Collective over `parent`.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent,
                                                    const std::string& label = "world");

}  // namespace pleat::comm

#include "pleat/comm/communicator_detail.hpp"
