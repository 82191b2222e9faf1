// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "backend.hpp"
#include "mpi_operation.hpp"
#include "pleat/base/error.hpp"
#include "pleat/comm/check_mpi.hpp"

namespace pleat::comm {
namespace detail {
namespace {

MPI_Datatype mpi_type(Element element) {
  switch (element) {
    case Element::kByte:
      return MPI_UINT8_T;
    case Element::kInt32:
      return MPI_INT32_T;
    case Element::kInt64:
      return MPI_INT64_T;
    case Element::kBf16:
      return MPI_UINT16_T;  // moved, never added
    case Element::kFloat:
      return MPI_FLOAT;
    case Element::kDouble:
      return MPI_DOUBLE;
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown element type");
}

MPI_Op mpi_operation(Reduction reduction) {
  return reduction == Reduction::kSum ? MPI_SUM : MPI_MAX;
}

/// Starts `start(pointer, count, &request)` for pieces whose counts fit into MPI's int.
template <class Byte, class Start>
std::shared_ptr<MpiOperation> in_pieces(Byte* data, std::size_t count, Element element,
                                        const Start& start) {
  constexpr std::size_t kLargest = std::size_t{1} << 30;
  const auto operation = std::make_shared<MpiOperation>();
  for (std::size_t done = 0; done < count; done += kLargest) {
    const auto piece = static_cast<int>(std::min(kLargest, count - done));
    operation->requests.push_back(MPI_REQUEST_NULL);
    PLEAT_CHECK_MPI(
        start(data + done * bytes_of(element), piece, &operation->requests.back()));
  }
  return operation;
}

/// out_N = sum of the members' parts of in_PN, in rank order.
void add_parts(std::int64_t members, std::int64_t count, const Bf16* in_PN, Bf16* out_N) {
  constexpr std::int64_t kBlock = 4096;
  using Host = Kokkos::DefaultHostExecutionSpace;
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  Kokkos::parallel_for(
      "pleat::comm::add_parts", Kokkos::RangePolicy<Host>(Host(), 0, blocks),
      [=](const std::int64_t block) {
        float sum[kBlock];
        const std::int64_t first = block * kBlock;
        const std::int64_t size = std::min(kBlock, count - first);
        std::fill_n(sum, size, 0.0F);
        for (std::int64_t p = 0; p < members; ++p) {
          const Bf16* const part = in_PN + p * count + first;
          for (std::int64_t i = 0; i < size; ++i) sum[i] += static_cast<float>(part[i]);
        }
        for (std::int64_t i = 0; i < size; ++i) out_N[first + i] = Bf16(sum[i]);
      });
  Host().fence("pleat::comm::add_parts");
}

class MpiBackend final : public HostBackend {
 public:
  /// Frees the handle in the end.
  MpiBackend(MPI_Comm handle, int rank) : handle_(handle), rank_(rank) {
    MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN);
  }
  ~MpiBackend() override { MPI_Comm_free(&handle_); }
  MpiBackend(const MpiBackend&) = delete;
  MpiBackend& operator=(const MpiBackend&) = delete;

  void barrier() override { PLEAT_CHECK_MPI(MPI_Barrier(handle_)); }
  MPI_Comm split(int colour) override {
    MPI_Comm part = MPI_COMM_NULL;
    PLEAT_CHECK_MPI(MPI_Comm_split(handle_, colour, rank_, &part));
    return part;
  }
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
  Pending reduce_scatter_bf16(const void* in, void* out, Counts counts);
  void start_all_to_all(const void* in, Counts send_counts, void* out, Counts recv_counts,
                        MPI_Datatype type, MpiOperation& operation);
  MPI_Request start_reduce_scatter(const void* in, void* out, Counts counts,
                                   MPI_Datatype type, MpiOperation& operation);

  MPI_Comm handle_;
  int rank_;
  std::shared_ptr<ScratchPool> pool_ = std::make_shared<ScratchPool>();
};

Pending MpiBackend::all_reduce(void* data, std::size_t count, Element element,
                               Reduction reduction) {
  return pending(in_pieces(static_cast<std::byte*>(data), count, element,
                           [&](std::byte* piece, int elements, MPI_Request* request) {
                             return MPI_Iallreduce(
                                 MPI_IN_PLACE, piece, elements, mpi_type(element),
                                 mpi_operation(reduction), handle_, request);
                           }));
}

Pending MpiBackend::broadcast(void* data, std::size_t count, Element element, int root) {
  return pending(in_pieces(static_cast<std::byte*>(data), count, element,
                           [&](std::byte* piece, int elements, MPI_Request* request) {
                             return MPI_Ibcast(piece, elements, mpi_type(element), root,
                                               handle_, request);
                           }));
}

// Equal counts need no table of places, so that the whole may exceed an int.
Pending MpiBackend::all_gather(void* out, Counts counts, Element element) {
  const auto operation = std::make_shared<MpiOperation>();
  const MPI_Datatype type = mpi_type(element);
  operation->requests = {MPI_REQUEST_NULL};
  if (all_alike(counts)) {
    const int count = int_parts(counts.first(1)).counts.front();
    PLEAT_CHECK_MPI(MPI_Iallgather(MPI_IN_PLACE, 0, type, out, count, type, handle_,
                                   &operation->requests.front()));
  } else {
    operation->received = int_parts(counts);
    PLEAT_CHECK_MPI(MPI_Iallgatherv(
        MPI_IN_PLACE, 0, type, out, operation->received.counts.data(),
        operation->received.places.data(), type, handle_, &operation->requests.front()));
  }
  return pending(operation);
}

MPI_Request MpiBackend::start_reduce_scatter(const void* in, void* out, Counts counts,
                                             MPI_Datatype type, MpiOperation& operation) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (all_alike(counts)) {
    const int count = int_parts(counts.first(1)).counts.front();
    PLEAT_CHECK_MPI(
        MPI_Ireduce_scatter_block(in, out, count, type, MPI_SUM, handle_, &request));
  } else {
    operation.received = int_parts(counts);
    PLEAT_CHECK_MPI(MPI_Ireduce_scatter(in, out, operation.received.counts.data(), type,
                                        MPI_SUM, handle_, &request));
  }
  return request;
}

// MPI has no sum for it, and an operation of our own would round at every member: each one
// gets all the parts that it adds up, which moves no more than a sum on the way.
Pending MpiBackend::reduce_scatter_bf16(const void* in, void* out, Counts counts) {
  const std::int64_t own = counts[static_cast<std::size_t>(rank_)];
  const std::vector<std::int64_t> own_P(counts.size(), own);
  const auto operation = std::make_shared<MpiOperation>();
  operation->scratch =
      pool_->take(counts.size() * static_cast<std::size_t>(own) * sizeof(Bf16));
  start_all_to_all(in, counts, operation->scratch.data(), own_P, mpi_type(Element::kBf16),
                   *operation);
  return Pending([operation, own, out, pool = pool_, members = std::ssize(own_P)] {
    if (!complete(operation)) return;
    const auto* const parts = reinterpret_cast<const Bf16*>(operation->scratch.data());
    add_parts(members, own, parts, static_cast<Bf16*>(out));
    pool->give_back(std::move(operation->scratch));
  });
}

// MPI's in-place variant leaves the result at the front of the input; from there it goes to
// the member's own part.
Pending MpiBackend::reduce_scatter(const void* in, void* out, Counts counts,
                                   Element element) {
  if (element == Element::kBf16) return reduce_scatter_bf16(in, out, counts);
  const auto operation = std::make_shared<MpiOperation>();
  const MPI_Datatype type = mpi_type(element);
  std::size_t whole = 0;
  for (const std::int64_t count : counts) whole += static_cast<std::size_t>(count);
  whole *= bytes_of(element);
  const std::size_t part =
      static_cast<std::size_t>(counts[static_cast<std::size_t>(rank_)]) *
      bytes_of(element);
  const auto* first = static_cast<const std::byte*>(in);
  const auto* target = static_cast<const std::byte*>(out);
  const bool inside =
      std::less_equal<>()(first, target) && std::less<>()(target, first + whole);
  if (!inside) {
    operation->requests = {start_reduce_scatter(in, out, counts, type, *operation)};
    return pending(operation);
  }
  operation->requests = {
      start_reduce_scatter(MPI_IN_PLACE, const_cast<void*>(in), counts, type, *operation)};
  return Pending([operation, in, out, part] {
    if (!complete(operation) || in == out) return;
    std::memmove(out, in, part);
  });
}

void MpiBackend::start_all_to_all(const void* in, Counts send_counts, void* out,
                                  Counts recv_counts, MPI_Datatype type,
                                  MpiOperation& operation) {
  operation.sent = int_parts(send_counts);
  operation.received = int_parts(recv_counts);
  operation.requests = {MPI_REQUEST_NULL};
  PLEAT_CHECK_MPI(MPI_Ialltoallv(
      in, operation.sent.counts.data(), operation.sent.places.data(), type, out,
      operation.received.counts.data(), operation.received.places.data(), type, handle_,
      &operation.requests.front()));
}

Pending MpiBackend::all_to_all(const void* in, Counts send_counts, void* out,
                               Counts recv_counts, Element element) {
  const auto operation = std::make_shared<MpiOperation>();
  start_all_to_all(in, send_counts, out, recv_counts, mpi_type(element), *operation);
  return pending(operation);
}

Pending MpiBackend::send(const void* data, std::size_t count, Element element, int to,
                         int tag) {
  return pending(in_pieces(
      static_cast<const std::byte*>(data), count, element,
      [&](const std::byte* piece, int elements, MPI_Request* request) {
        return MPI_Isend(piece, elements, mpi_type(element), to, tag, handle_, request);
      }));
}

Pending MpiBackend::receive(void* data, std::size_t count, Element element, int from,
                            int tag) {
  const auto operation = in_pieces(
      static_cast<std::byte*>(data), count, element,
      [&](std::byte* piece, int elements, MPI_Request* request) {
        return MPI_Irecv(piece, elements, mpi_type(element), from, tag, handle_, request);
      });
  return Pending([operation, count, element, from] {
    if (!complete(operation)) return;
    std::size_t arrived = 0;
    for (const MPI_Status& status : operation->statuses) {
      int elements = 0;
      PLEAT_CHECK_MPI(MPI_Get_count(&status, mpi_type(element), &elements));
      arrived += static_cast<std::size_t>(elements);
    }
    PLEAT_REQUIRE(arrived == count, InternalError, "PL0804",
                  "member {} sent {} elements where {} were expected", from, arrived,
                  count);
  });
}

}  // namespace

void check_mpi(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  PLEAT_FAIL(InternalError, "PL0810", "{} failed at {}:{}: {}", call, file, line,
             std::string(text, static_cast<std::size_t>(length)));
}

}  // namespace detail

std::unique_ptr<Communicator> adopt_mpi_communicator(MPI_Comm handle,
                                                     const std::string& label,
                                                     const Transport& transport) {
  int rank = 0;
  int size = 1;
  PLEAT_CHECK_MPI(MPI_Comm_rank(handle, &rank));
  PLEAT_CHECK_MPI(MPI_Comm_size(handle, &size));
  auto host = std::make_unique<detail::MpiBackend>(handle, rank);
  if (size == 1) return make_self_communicator(label);
  std::unique_ptr<detail::Backend> device;
  if (transport.kind == BackendKind::kNccl)
    device = detail::make_nccl_backend(handle, label, transport.messages);
  return std::make_unique<Communicator>(label, rank, size, std::move(host),
                                        std::move(device));
}

std::unique_ptr<Communicator> make_communicator(MPI_Comm parent, BackendKind backend,
                                                const std::string& label) {
  int size = 1;
  PLEAT_CHECK_MPI(MPI_Comm_size(parent, &size));
  if (size == 1) return make_self_communicator(label);
  MPI_Comm handle = MPI_COMM_NULL;
  PLEAT_CHECK_MPI(MPI_Comm_dup(parent, &handle));
  return adopt_mpi_communicator(handle, label, {.kind = backend, .messages = true});
}

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent,
                                                    const std::string& label) {
  return make_communicator(parent, BackendKind::kMpi, label);
}

}  // namespace pleat::comm
