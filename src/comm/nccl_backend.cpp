// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"
#include "pleat/base/error.hpp"

#ifdef PLEAT_HAVE_NCCL
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "nccl_channel.hpp"
#include "pleat/comm/check_mpi.hpp"

namespace pleat::comm::detail {
namespace {

ncclDataType_t nccl_type(Element element) {
  switch (element) {
    case Element::kByte:
      return ncclUint8;
    case Element::kInt32:
      return ncclInt32;
    case Element::kInt64:
      return ncclInt64;
    case Element::kBf16:
      return ncclBfloat16;
    case Element::kFloat:
      return ncclFloat32;
    case Element::kDouble:
      return ncclFloat64;
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown element type");
}

ncclRedOp_t nccl_operation(Reduction reduction) {
  return reduction == Reduction::kSum ? ncclSum : ncclMax;
}

/// out_N = sum of the members' parts of in_PN in rank order, rounded once.
void add_device_parts(const ExecSpace& exec, std::int64_t members, std::int64_t count,
                      const Bf16* in_PN, Bf16* out_N) {
  Kokkos::parallel_for(
      "pleat::comm::add_device_parts", Kokkos::RangePolicy<ExecSpace>(exec, 0, count),
      KOKKOS_LAMBDA(const std::int64_t i) {
        float sum = 0.0F;
        for (std::int64_t p = 0; p < members; ++p)
          sum += static_cast<float>(in_PN[p * count + i]);
        out_N[i] = Bf16(sum);
      });
}

/// The two ways around the ring of members: to the next one, or to the previous one.
enum Way : std::size_t { kUp, kDown, kWays };

/// Collectives have one channel. A message waits on the device until it is received, so
/// each way between two neighbours has a channel of its own: whatever the order in which
/// members send and receive, a message holds up only those behind it.
class NcclBackend final : public Backend {
 public:
  NcclBackend(MPI_Comm members, const std::string& label, bool messages);

  Pending all_reduce(void* data, std::size_t count, Element element,
                     Reduction reduction) override;
  Pending broadcast(void* data, std::size_t count, Element element, int root) override;
  Pending all_gather(void* out, Counts counts, Element element) override;
  Pending reduce_scatter(const void* in, void* out, Counts counts,
                         Element element) override;
  Pending all_to_all(const void* in, Counts send_counts, void* out, Counts recv_counts,
                     Element element) override;
  Pending send(const void* data, std::size_t count, Element element, int to,
               int tag) override;
  Pending receive(void* data, std::size_t count, Element element, int from,
                  int tag) override;

 private:
  using Channel = std::shared_ptr<NcclChannel>;

  int neighbour(Way way) const { return (rank_ + (way == kUp ? 1 : size_ - 1)) % size_; }
  Way way_of(int peer, int next, int tag) const;
  void connect(MPI_Comm members);
  void make_links();
  Bf16* room_for(std::size_t elements);
  Pending reduce_scatter_bf16(const void* in, void* out, Counts counts);
  void queue_send(NcclChannel& channel, const void* data, std::int64_t count,
                  Element element, int to) const;
  void queue_receive(NcclChannel& channel, void* data, std::int64_t count,
                     Element element, int from) const;

  std::string label_;
  int rank_ = 0;
  int size_ = 1;
  Channel all_;
  std::array<Channel, kWays> out_;  ///< to neighbour(way); empty where no one sends
  std::array<Channel, kWays> in_;   ///< from neighbour(the other way)
  DeviceView<Bf16, 1> parts_;       ///< of sums in bf16; used in the order of the stream
  std::optional<StreamKernels> kernels_;
};

NcclBackend::NcclBackend(MPI_Comm members, const std::string& label, bool messages)
    : label_(label) {
  PLEAT_CHECK_MPI(MPI_Comm_rank(members, &rank_));
  PLEAT_CHECK_MPI(MPI_Comm_size(members, &size_));
  all_ = std::make_shared<NcclChannel>(
      fmt::format("group {}, member {} of {}", label_, rank_, size_));
  if (messages && size_ > 1) make_links();
  connect(members);
}

void NcclBackend::make_links() {
  for (const Way way : {kUp, kDown}) {
    const auto link = [&](int from, int to) {
      return std::make_shared<NcclChannel>(
          fmt::format("group {}, member {} of {}, messages from {} to {}", label_, rank_,
                      size_, from, to));
    };
    out_[way] = link(rank_, neighbour(way));
    in_[way] = link(neighbour(way == kUp ? kDown : kUp), rank_);
  }
}

/// Every member tells the identifiers of what begins with it: the group with the first
/// one, a link with the sender. All are connected together: a ring of links has no order
/// in which it could be connected one by one.
void NcclBackend::connect(MPI_Comm members) {
  using Ids = std::array<ncclUniqueId, 1 + kWays>;
  Ids mine{};
  if (rank_ == 0) all_->check(ncclGetUniqueId(&mine[0]), "ncclGetUniqueId");
  for (const Way way : {kUp, kDown}) {
    if (out_[way]) all_->check(ncclGetUniqueId(&mine[1 + way]), "ncclGetUniqueId");
  }
  std::vector<Ids> ids(static_cast<std::size_t>(size_));
  PLEAT_CHECK_MPI(MPI_Allgather(mine.data(), sizeof(Ids), MPI_BYTE, ids.data(),
                                sizeof(Ids), MPI_BYTE, members));
  all_->batch([&] {
    all_->connect(ids.front()[0], rank_, size_);
    for (const Way way : {kUp, kDown}) {
      if (!out_[way]) continue;
      const auto sender = static_cast<std::size_t>(neighbour(way == kUp ? kDown : kUp));
      out_[way]->connect(mine[1 + way], 0, 2);
      in_[way]->connect(ids[sender][1 + way], 1, 2);
    }
  });
}

Pending NcclBackend::all_reduce(void* data, std::size_t count, Element element,
                                Reduction reduction) {
  if (count == 0) return {};
  return all_->start([&] {
    all_->check(ncclAllReduce(data, data, count, nccl_type(element),
                              nccl_operation(reduction), all_->comm(), all_->stream()),
                "ncclAllReduce");
  });
}

Pending NcclBackend::broadcast(void* data, std::size_t count, Element element, int root) {
  if (count == 0) return {};
  return all_->start([&] {
    all_->check(ncclBroadcast(data, data, count, nccl_type(element), root, all_->comm(),
                              all_->stream()),
                "ncclBroadcast");
  });
}

/// Calls `part(member, count, place in bytes)` for the parts that are not empty.
template <class Part>
void for_each_part(std::span<const std::int64_t> counts, Element element,
                   const Part& part) {
  std::size_t place = 0;
  for (std::size_t p = 0; p < counts.size(); ++p) {
    if (counts[p] > 0) part(static_cast<int>(p), counts[p], place);
    place += static_cast<std::size_t>(counts[p]) * bytes_of(element);
  }
}

void NcclBackend::queue_send(NcclChannel& channel, const void* data, std::int64_t count,
                             Element element, int to) const {
  channel.check(ncclSend(data, static_cast<std::size_t>(count), nccl_type(element), to,
                         channel.comm(), channel.stream()),
                "ncclSend");
}

void NcclBackend::queue_receive(NcclChannel& channel, void* data, std::int64_t count,
                                Element element, int from) const {
  channel.check(ncclRecv(data, static_cast<std::size_t>(count), nccl_type(element), from,
                         channel.comm(), channel.stream()),
                "ncclRecv");
}

Pending NcclBackend::all_gather(void* out, Counts counts, Element element) {
  auto* const first = static_cast<std::byte*>(out);
  const auto own = static_cast<std::size_t>(counts[static_cast<std::size_t>(rank_)]);
  std::size_t own_place = 0;
  std::int64_t others = 0;
  for_each_part(counts, element, [&](int member, std::int64_t count, std::size_t place) {
    if (member == rank_) own_place = place;
    others += count;
  });
  if (others == 0) return {};
  if (all_alike(counts)) {
    return all_->start([&] {
      all_->check(
          ncclAllGather(first + static_cast<std::size_t>(rank_) * own * bytes_of(element),
                        out, own, nccl_type(element), all_->comm(), all_->stream()),
          "ncclAllGather");
    });
  }
  return all_->start([&] {
    all_->batch([&] {
      for_each_part(counts, element,
                    [&](int member, std::int64_t count, std::size_t place) {
                      if (member != rank_)
                        queue_receive(*all_, first + place, count, element, member);
                    });
      for (int member = 0; member < size_; ++member) {
        if (member != rank_ && own > 0)
          queue_send(*all_, first + own_place, static_cast<std::int64_t>(own), element,
                     member);
      }
    });
  });
}

/// Grows only; what is under way is waited for before the old memory is freed.
Bf16* NcclBackend::room_for(std::size_t elements) {
  if (parts_.extent(0) < elements) {
    Kokkos::fence("pleat::comm::NcclBackend");
    parts_ = {};
    parts_ = DeviceView<Bf16, 1>(
        Kokkos::view_alloc(Kokkos::WithoutInitializing, "pleat::comm::parts"), elements);
  }
  return parts_.data();
}

/// A sum on the way would be rounded at every member: as over MPI, each member gets all
/// parts that it adds up.
Pending NcclBackend::reduce_scatter_bf16(const void* in, void* out, Counts counts) {
  const std::int64_t own = counts[static_cast<std::size_t>(rank_)];
  const std::size_t part = static_cast<std::size_t>(own) * sizeof(Bf16);
  Bf16* const parts = room_for(static_cast<std::size_t>(own * size_));
  if (!kernels_) kernels_.emplace(all_->stream());
  return all_->start([&] {
    all_->batch([&] {
      for_each_part(counts, Element::kBf16,
                    [&](int member, std::int64_t count, std::size_t place) {
                      queue_send(*all_, static_cast<const std::byte*>(in) + place, count,
                                 Element::kBf16, member);
                    });
      for (int member = 0; member < size_ && own > 0; ++member) {
        queue_receive(
            *all_,
            reinterpret_cast<std::byte*>(parts) + static_cast<std::size_t>(member) * part,
            own, Element::kBf16, member);
      }
    });
    if (own == 0) return;
    kernels_->run([&](const ExecSpace& exec) {
      add_device_parts(exec, size_, own, parts, static_cast<Bf16*>(out));
    });
  });
}

Pending NcclBackend::reduce_scatter(const void* in, void* out, Counts counts,
                                    Element element) {
  if (std::all_of(counts.begin(), counts.end(), [](std::int64_t n) { return n == 0; }))
    return {};
  if (element == Element::kBf16) return reduce_scatter_bf16(in, out, counts);
  const ncclDataType_t type = nccl_type(element);
  if (all_alike(counts)) {
    return all_->start([&] {
      all_->check(ncclReduceScatter(in, out, static_cast<std::size_t>(counts.front()),
                                    type, ncclSum, all_->comm(), all_->stream()),
                  "ncclReduceScatter");
    });
  }
  return all_->start([&] {
    all_->batch([&] {
      for_each_part(
          counts, element, [&](int member, std::int64_t count, std::size_t place) {
            all_->check(ncclReduce(static_cast<const std::byte*>(in) + place,
                                   member == rank_ ? out : nullptr,
                                   static_cast<std::size_t>(count), type, ncclSum, member,
                                   all_->comm(), all_->stream()),
                        "ncclReduce");
          });
    });
  });
}

Pending NcclBackend::all_to_all(const void* in, Counts send_counts, void* out,
                                Counts recv_counts, Element element) {
  return all_->start([&] {
    all_->batch([&] {
      for_each_part(send_counts, element,
                    [&](int member, std::int64_t count, std::size_t place) {
                      queue_send(*all_, static_cast<const std::byte*>(in) + place, count,
                                 element, member);
                    });
      for_each_part(recv_counts, element,
                    [&](int member, std::int64_t count, std::size_t place) {
                      queue_receive(*all_, static_cast<std::byte*>(out) + place, count,
                                    element, member);
                    });
    });
  });
}

/// In a group of two the next member is the previous one, too; there the tags keep apart
/// what goes up and down: those of a pipeline are even forwards and odd backwards.
Way NcclBackend::way_of(int peer, int next, int tag) const {
  PLEAT_ASSERT(out_[kUp], "group {} was made without messages between devices", label_);
  PLEAT_ASSERT(peer == neighbour(kUp) || peer == neighbour(kDown),
               "members {} and {} of {} are no neighbours", rank_, peer, size_);
  if (size_ == 2) return tag % 2 == 0 ? kUp : kDown;
  return peer == next ? kUp : kDown;
}

Pending NcclBackend::send(const void* data, std::size_t count, Element element, int to,
                          int tag) {
  const Channel& link = out_[way_of(to, neighbour(kUp), tag)];
  if (count == 0) return {};
  return link->start(
      [&] { queue_send(*link, data, static_cast<std::int64_t>(count), element, 1); });
}

Pending NcclBackend::receive(void* data, std::size_t count, Element element, int from,
                             int tag) {
  const Channel& link = in_[way_of(from, neighbour(kDown), tag)];
  if (count == 0) return {};
  return link->start(
      [&] { queue_receive(*link, data, static_cast<std::int64_t>(count), element, 0); });
}

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(MPI_Comm members, const std::string& label,
                                           bool messages) {
  return std::make_unique<NcclBackend>(members, label, messages);
}

std::string device_address() {
  int device = 0;
  gpu::check(PLEAT_GPU(GetDevice)(&device), "GetDevice");
  std::array<char, 64> address{};
  gpu::check(PLEAT_GPU(DeviceGetPCIBusId)(address.data(), address.size(), device),
             "DeviceGetPCIBusId");
  return address.data();
}

}  // namespace pleat::comm::detail

#else

namespace pleat::comm::detail {

std::unique_ptr<Backend> make_nccl_backend(MPI_Comm, const std::string& label, bool) {
  PLEAT_FAIL(InternalError, "PL0100", "group {} over NCCL, which is not compiled in",
             label);
}

std::string device_address() { return {}; }

}  // namespace pleat::comm::detail
#endif
