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
#include <type_traits>
#include <vector>

#include <mpi.h>

#include "pleat/base/types.hpp"
#include "pleat/comm/backend_choice.hpp"
#include "pleat/comm/element.hpp"
#include "pleat/comm/pending.hpp"
#include "pleat/comm/traffic.hpp"

namespace pleat::comm {

namespace detail {
class Backend;
class HostBackend;
}  // namespace detail

/// \brief A group of ranks.
///
/// Every member function but rank(), size(), label(), traffic(), parts() and
/// exchange_under_way() is collective: all members call it, in the same order, except send() and receive(),
/// which pair up. Sums are formed in the same order each time and have the same bits on
/// every member.
///
/// Views are flat, rank 1, and may lie on a device. All members pass views in the same
/// kind of memory. What the host may count on is the same everywhere: an operation reads
/// what ExecSpace was given to write before the call, and after a blocking operation or
/// wait() the values are there for all further work of ExecSpace and for
/// `Kokkos::deep_copy`, and the memory may be used again by such work. How that comes
/// about differs:
///
/// - Host memory, and device memory in a group over MPI alone: the operation fences,
///   device memory is staged through host memory, and the operation has finished when it
///   returns. Host memory of a program for a GPU is not the business of ExecSpace: what
///   it still copies from or to there has to be waited for by the caller, and the
///   operation waits for no kernel.
/// - Device memory in a group over NCCL: nothing waits on the host. The exchange is
///   queued on a stream of its own, behind the work that ExecSpace has queued, and wait()
///   queues: the stream of ExecSpace waits for it. ready() tells whether it has finished.
///   Messages go to the next and the previous member only (modulo size()), and tags do
///   not sort them: the messages of one pair and direction are received in the order in
///   which they were sent. In a group of two, even and odd tags are two such directions.
///   A message of another length than expected is not detected.
///
/// The start_ variants return while the exchange is under way, unless forgo_overlap() was
/// called. A group of one copies or does nothing, without a fence.
///
/// \throws InputError PL0803 for counts that MPI cannot hold, InternalError PL0100 for
/// views that do not fit the counts, PL0810 when MPI fails, PL0811 when NCCL fails,
/// PL0812 when CUDA or HIP does
class Communicator {
 public:
  /// \brief Called by the functions that make communicators. \param host  moves data in
  /// host memory; none in a group of one \param device  moves data in the memory of
  /// ExecSpace; none: it is staged
  Communicator(std::string label, int rank, int size,
               std::unique_ptr<detail::HostBackend> host,
               std::unique_ptr<detail::Backend> device);
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
  const Traffic& traffic() const { return *traffic_; }
  /// \brief A group that split() cut out of this one: what it has sent, also when it is gone.
  struct Part {
    std::string label;
    std::shared_ptr<const Traffic> traffic;
    std::shared_ptr<const Waiting> waiting;
  };
  const std::vector<Part>& parts() const { return parts_; }
  /// \brief How long the host has waited for exchanges through this object so far.
  double waited_seconds() const { return waiting_->seconds(); }
  /// \brief From now on start_ variants and receive() return when the exchange has
  /// finished; only send() does not wait. For measuring what overlap brings.
  void forgo_overlap() { overlaps_ = false; }
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
    if (size_ > 1)
      reduce_through(Memory::kHost, &value, 1, element_of<T>(), reduction).wait();
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
  enum class Memory { kHost, kDevice };

  template <class In, class Out>
  Pending gather_views(const In& in_N, const Out& out_M, Counts counts);
  template <class In, class Out>
  Pending scatter_views(const In& in_M, const Out& out_N, Counts counts);

  /// Whether data of all these views goes from device to device.
  template <class... Views>
  bool is_direct() const {
    return device_ && (std::is_same_v<typename Views::memory_space, MemSpace> && ...);
  }

  detail::Backend& backend(Memory memory) const;
  // The same operations on memory: checked, counted and handed to its back end.
  Pending reduce_through(Memory memory, void* data, std::size_t count, Element element,
                         Reduction reduction);
  Pending broadcast_through(Memory memory, void* data, std::size_t count, Element element,
                            int root);
  Pending gather_through(Memory memory, void* out, Counts counts, Element element);
  Pending scatter_through(Memory memory, const void* in, void* out, Counts counts,
                          Element element);
  Pending exchange_through(Memory memory, const void* in, Counts send_counts, void* out,
                           Counts recv_counts, Element element);
  Pending send_through(Memory memory, const void* data, std::size_t count,
                       Element element, int to, int tag);
  Pending receive_through(Memory memory, void* data, std::size_t count, Element element,
                          int from, int tag);

  // Both throw InternalError PL0100 unless there is a count for each member and the views
  // have the sizes; the second returns the place of this member's part.
  void check_total(Counts counts, std::size_t whole) const;
  std::int64_t checked_offset(Counts counts, std::size_t part, std::size_t whole) const;
  void count_traffic(Exchange exchange, double bytes);
  Pending shown(Pending pending, const char* exchange) const;
  /// shown(), and waited for where nothing overlaps.
  Pending started(Pending pending, const char* exchange) const;

  std::string label_;
  int rank_;
  int size_;
  bool overlaps_ = true;
  std::shared_ptr<Traffic> traffic_ = std::make_shared<Traffic>();
  std::vector<Part> parts_;
  /// Shared with exchanges under way, which may outlive this object.
  std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
  std::unique_ptr<detail::HostBackend> host_;
  std::unique_ptr<detail::Backend> device_;
};

/// \brief The group of this rank alone.
std::unique_ptr<Communicator> make_self_communicator(const std::string& label = "self");

/// \brief A group with the members and the order of `parent`, in a context of its own
/// that is freed with the object. Collective over `parent`.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent,
                                                    const std::string& label = "world");

/// \brief The same over the back end of choose_backend().
std::unique_ptr<Communicator> make_communicator(MPI_Comm parent, BackendKind backend,
                                                const std::string& label = "world");

}  // namespace pleat::comm

#include "pleat/comm/communicator_detail.hpp"
