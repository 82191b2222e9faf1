// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "pleat/base/error.hpp"
#include "pleat/comm/check_mpi.hpp"
#include "pleat/comm/communicator.hpp"

namespace pleat::comm {
namespace {

MPI_Datatype mpi_type(Element element) {
  switch (element) {
    case Element::kByte:
      return MPI_UINT8_T;
    case Element::kInt32:
      return MPI_INT32_T;
    case Element::kInt64:
      return MPI_INT64_T;
    case Element::kFloat:
      return MPI_FLOAT;
    case Element::kDouble:
      return MPI_DOUBLE;
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown element type");
}

std::size_t bytes_of(Element element) {
  switch (element) {
    case Element::kByte:
      return 1;
    case Element::kInt32:
    case Element::kFloat:
      return 4;
    case Element::kInt64:
    case Element::kDouble:
      return 8;
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown element type");
}

/// Calls `call(pointer, count)` for pieces whose counts fit into MPI's int.
template <class Call>
void in_pieces(void* data, std::size_t count, Element element, const Call& call) {
  constexpr std::size_t kLargest = std::size_t{1} << 30;
  for (std::size_t done = 0; done < count; done += kLargest) {
    const std::size_t piece = std::min(kLargest, count - done);
    call(static_cast<std::byte*>(data) + done * bytes_of(element),
         static_cast<int>(piece));
  }
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(MPI_Comm parent) {
    PLEAT_CHECK_MPI(MPI_Comm_dup(parent, &handle_));
    PLEAT_CHECK_MPI(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN));
    PLEAT_CHECK_MPI(MPI_Comm_rank(handle_, &rank_));
    PLEAT_CHECK_MPI(MPI_Comm_size(handle_, &size_));
  }
  ~MpiCommunicator() override { MPI_Comm_free(&handle_); }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override { PLEAT_CHECK_MPI(MPI_Barrier(handle_)); }

 protected:
  void reduce_host(void* data, std::size_t count, Element element,
                   Reduction reduction) override {
    const MPI_Op operation = reduction == Reduction::kSum ? MPI_SUM : MPI_MAX;
    in_pieces(data, count, element, [&](std::byte* piece, int elements) {
      PLEAT_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, piece, elements, mpi_type(element),
                                    operation, handle_));
    });
  }
  void broadcast_host(void* data, std::size_t count, Element element, int root) override {
    in_pieces(data, count, element, [&](std::byte* piece, int elements) {
      PLEAT_CHECK_MPI(MPI_Bcast(piece, elements, mpi_type(element), root, handle_));
    });
  }

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

namespace detail {

void check_mpi(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  PLEAT_FAIL(InternalError, "PL0810", "{} failed at {}:{}: {}", call, file, line,
             std::string(text, static_cast<std::size_t>(length)));
}

}  // namespace detail

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent) {
  return std::make_unique<MpiCommunicator>(parent);
}

}  // namespace pleat::comm
