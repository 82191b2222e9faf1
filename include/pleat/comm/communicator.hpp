// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Collectives over a group of ranks: the one interface through which every
/// exchange of the program goes.
///
/// Legend: P members of the group, N elements of one member.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include <mpi.h>

#include "pleat/base/types.hpp"
#include "pleat/comm/traffic.hpp"

namespace pleat::comm {

enum class Reduction { kSum, kMax };
enum class Element { kByte, kInt32, kInt64, kFloat, kDouble };

std::size_t bytes_of(Element element);

/// \brief The element type of a collective.
template <class T>
constexpr Element element_of() {
  if constexpr (std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::byte>) {
    return Element::kByte;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return Element::kInt32;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return Element::kInt64;
  } else if constexpr (std::is_same_v<T, float>) {
    return Element::kFloat;
  } else {
    static_assert(std::is_same_v<T, double>, "no collective for this element type");
    return Element::kDouble;
  }
}

/// \brief An operation under way. Its views must live until wait() has returned; the
/// destructor waits. Move-only; an empty one is done.
class Pending {
 public:
  Pending() = default;
  explicit Pending(std::function<void()> finish) : finish_(std::move(finish)) {}
  Pending(Pending&& other) noexcept : finish_(std::exchange(other.finish_, nullptr)) {}
  Pending& operator=(Pending&& other) {
    wait();
    finish_ = std::exchange(other.finish_, nullptr);
    return *this;
  }
  ~Pending() { wait(); }

  bool done() const { return !finish_; }
  void wait() {
    if (finish_) std::exchange(finish_, nullptr)();
  }

 private:
  std::function<void()> finish_;
};

/// \brief A group of ranks.
///
/// Every member function but rank(), size(), label() and traffic() is collective: all
/// members call it, in the same order, except send() and receive(), which pair up. Sums
/// are formed in the same order each time and have the same bits on every member.
///
/// Views are flat, rank 1, and may lie on a device. Operations wait for `exec`-queued work
/// by a fence before they read, and a blocking operation has finished when it returns.
/// The start_ variants return while the exchange is under way. A group of one copies or
/// does nothing, without a fence.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// \brief The axes that the group runs along, e.g. "data*context"; for messages and
  /// tables.
  virtual const std::string& label() const = 0;
  virtual void barrier() = 0;
  /// \brief Members of one colour form a group, in the order of their ranks here.
  virtual std::unique_ptr<Communicator> split(int colour, const std::string& label) = 0;
  /// \brief What this rank has sent through this object so far.
  virtual const Traffic& traffic() const = 0;

  /// \brief x_N = sum or maximum of every member's x_N, on every member.
  template <class View>
  void all_reduce(const View& x_N, Reduction reduction) {
    start_all_reduce(x_N, reduction).wait();
  }
  template <class View>
  [[nodiscard]] Pending start_all_reduce(const View& x_N, Reduction reduction);
  /// \brief The sum or maximum of a single value.
  template <class T>
  T all_reduce_value(T value, Reduction reduction) {
    reduce_host(&value, 1, element_of<T>(), reduction);
    return value;
  }

  /// \brief x_N = the root's x_N, on every member.
  template <class View>
  void broadcast(const View& x_N, int root);

  /// \brief out_PN = every member's in_N, in rank order. in_N may be this member's own part
  /// of out_PN.
  template <class In, class Out>
  void all_gather(const In& in_N, const Out& out_PN) {
    start_all_gather(in_N, out_PN).wait();
  }
  template <class In, class Out>
  [[nodiscard]] Pending start_all_gather(const In& in_N, const Out& out_PN);
  /// \brief The same with counts[p] elements from member p.
  template <class In, class Out>
  void all_gather_v(const In& in_N, const Out& out_M, std::span<const std::int64_t> counts);

  /// \brief out_N = this member's part of the sum of every in_PN. out_N may be this member's
  /// own part of in_PN; the rest of in_PN is then undefined.
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

  /// \brief To and from one member; messages of one pair and tag arrive in order.
  template <class View>
  [[nodiscard]] Pending send(const View& x_N, int to, int tag);
  template <class View>
  [[nodiscard]] Pending receive(const View& x_N, int from, int tag);
};

/// \brief The group of this rank alone.
std::unique_ptr<Communicator> make_self_communicator(const std::string& label = "self");

/// \brief A group with the members and the order of `parent`, in a context of its own
/// that is freed with the object. Collective over `parent`.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent,
                                                    const std::string& label = "world");

}  // namespace pleat::comm
