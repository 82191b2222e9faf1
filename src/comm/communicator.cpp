// SPDX-License-Identifier: Apache-2.0
#include "pleat/comm/communicator.hpp"

#include <algorithm>
#include <numeric>

#include "backend.hpp"
#include "pleat/base/error.hpp"

namespace pleat::comm {
namespace {

std::int64_t sum(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

double bytes(std::int64_t elements, Element element) {
  return static_cast<double>(elements) * static_cast<double>(bytes_of(element));
}

}  // namespace

std::size_t bytes_of(Element element) {
  switch (element) {
    case Element::kByte:
      return 1;
    case Element::kBf16:
      return 2;
    case Element::kInt32:
    case Element::kFloat:
      return 4;
    case Element::kInt64:
    case Element::kDouble:
      return 8;
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown element type");
}

bool detail::all_alike(std::span<const std::int64_t> counts) {
  return std::all_of(counts.begin(), counts.end(),
                     [&](std::int64_t count) { return count == counts.front(); });
}

Communicator::Communicator(std::string label, int rank, int size,
                           std::unique_ptr<detail::HostBackend> host,
                           std::unique_ptr<detail::Backend> device)
    : label_(std::move(label)),
      rank_(rank),
      size_(size),
      host_(std::move(host)),
      device_(std::move(device)) {}

Communicator::~Communicator() = default;

std::unique_ptr<Communicator> make_self_communicator(const std::string& label) {
  return std::make_unique<Communicator>(label, 0, 1, nullptr, nullptr);
}

void Communicator::barrier() {
  if (size_ == 1) return;
  const WaitScope scope(*waiting_, "barrier");
  host_->barrier();
}

std::unique_ptr<Communicator> Communicator::split(int colour, const std::string& label) {
  if (size_ == 1) return make_self_communicator(label);
  const WaitScope scope(*waiting_, "split");
  std::unique_ptr<Communicator> part = adopt_mpi_communicator(
      host_->split(colour), label,
      {.kind = device_ ? BackendKind::kNccl : BackendKind::kMpi, .messages = false});
  part->overlaps_ = overlaps_;
  if (part->size() > 1) parts_.push_back({label, part->traffic_, part->waiting_});
  return part;
}

void Communicator::check_total(Counts counts, std::size_t whole) const {
  PLEAT_ASSERT(counts.size() == static_cast<std::size_t>(size_),
               "{} counts for {} members", counts.size(), size_);
  for (const std::int64_t count : counts)
    PLEAT_ASSERT(count >= 0, "a count is {}", count);
  PLEAT_ASSERT(sum(counts) == static_cast<std::int64_t>(whole),
               "counts of {} elements in all for a view of {} (group {})", sum(counts),
               whole, label_);
}

std::int64_t Communicator::checked_offset(Counts counts, std::size_t part,
                                          std::size_t whole) const {
  check_total(counts, whole);
  const auto mine = static_cast<std::size_t>(rank_);
  PLEAT_ASSERT(counts[mine] == static_cast<std::int64_t>(part),
               "a count of {} for a view of {} (group {})", counts[mine], part, label_);
  return sum(counts.first(mine));
}

void Communicator::count_traffic(Exchange exchange, double bytes) {
  Traffic::Entry& entry = traffic_->entries[static_cast<std::size_t>(exchange)];
  ++entry.calls;
  entry.bytes += bytes;
}

Pending Communicator::shown(Pending pending, const char* exchange) const {
  return std::move(pending).shown_in(waiting_, exchange);
}

Pending Communicator::started(Pending pending, const char* exchange) const {
  Pending under_way = shown(std::move(pending), exchange);
  if (!overlaps_) under_way.wait();
  return under_way;
}

detail::Backend& Communicator::backend(Memory memory) const {
  if (memory == Memory::kDevice) return *device_;
  return *host_;
}

Pending Communicator::reduce_through(Memory memory, void* data, std::size_t count,
                                     Element element, Reduction reduction) {
  const double n = bytes(static_cast<std::int64_t>(count), element);
  count_traffic(Exchange::kAllReduce, 2.0 * (size_ - 1) * n / size_);
  return started(backend(memory).all_reduce(data, count, element, reduction),
                 exchange_name(Exchange::kAllReduce));
}

Pending Communicator::broadcast_through(Memory memory, void* data, std::size_t count,
                                        Element element, int root) {
  const double n = bytes(static_cast<std::int64_t>(count), element);
  count_traffic(Exchange::kBroadcast, (size_ - 1) * n / size_);
  return started(backend(memory).broadcast(data, count, element, root),
                 exchange_name(Exchange::kBroadcast));
}

Pending Communicator::gather_through(Memory memory, void* out, Counts counts,
                                     Element element) {
  const auto mine = static_cast<std::size_t>(rank_);
  count_traffic(Exchange::kAllGather, (size_ - 1) * bytes(counts[mine], element));
  return started(backend(memory).all_gather(out, counts, element),
                 exchange_name(Exchange::kAllGather));
}

Pending Communicator::scatter_through(Memory memory, const void* in, void* out,
                                      Counts counts, Element element) {
  const auto mine = static_cast<std::size_t>(rank_);
  count_traffic(Exchange::kReduceScatter, bytes(sum(counts) - counts[mine], element));
  return started(backend(memory).reduce_scatter(in, out, counts, element),
                 exchange_name(Exchange::kReduceScatter));
}

Pending Communicator::exchange_through(Memory memory, const void* in, Counts send_counts,
                                       void* out, Counts recv_counts, Element element) {
  const auto mine = static_cast<std::size_t>(rank_);
  count_traffic(Exchange::kAllToAll,
                bytes(sum(send_counts) - send_counts[mine], element));
  return started(backend(memory).all_to_all(in, send_counts, out, recv_counts, element),
                 exchange_name(Exchange::kAllToAll));
}

Pending Communicator::send_through(Memory memory, const void* data, std::size_t count,
                                   Element element, int to, int tag) {
  PLEAT_ASSERT(to >= 0 && to < size_ && to != rank_, "member {} of {} sends to {}", rank_,
               size_, to);
  count_traffic(Exchange::kSend, bytes(static_cast<std::int64_t>(count), element));
  return shown(backend(memory).send(data, count, element, to, tag),
               exchange_name(Exchange::kSend));
}

Pending Communicator::receive_through(Memory memory, void* data, std::size_t count,
                                      Element element, int from, int tag) {
  PLEAT_ASSERT(from >= 0 && from < size_ && from != rank_,
               "member {} of {} receives from {}", rank_, size_, from);
  return started(backend(memory).receive(data, count, element, from, tag), "receive");
}

}  // namespace pleat::comm
