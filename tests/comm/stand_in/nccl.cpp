// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Each operation is what a member sends, what it receives, and what it makes of
/// that. A launch first sends all, then receives all, then writes all results.
#include "nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <mpi.h>

#include "counters.hpp"
#include "stream.hpp"

struct StandInComm {
  int rank = 0;
  int tag = 0;
  std::vector<int> world_ranks;  ///< of the members
  std::atomic<ncclResult_t> state{ncclSuccess};
  std::atomic<bool> aborted{false};
  cudaStream_t stream = nullptr;  ///< the only one that it was used on
  int size() const { return static_cast<int>(world_ranks.size()); }
};

namespace {

using Bytes = std::vector<std::byte>;

struct Operation {
  struct Sent {
    int to;
    const void* data;
    std::size_t bytes;
  };
  struct Received {
    int from;
    std::size_t bytes;
  };
  std::vector<Sent> sends;
  std::vector<Received> receives;
  std::function<void(const std::vector<Bytes>& arrived)> finish;
};

struct Launch {
  ncclComm_t comm;
  cudaStream_t stream;
  Operation operation;
};
struct Connection {
  ncclComm_t* comm;
  int size;
  ncclUniqueId id;
  int rank;
};

thread_local int depth = 0;
thread_local std::vector<Launch> launches;
thread_local std::vector<Connection> connections;
std::atomic<ncclResult_t> next_failure{ncclSuccess};
std::atomic<ncclResult_t> failure_behind{ncclSuccess};
std::atomic<int> connected{0};
std::atomic<int> destroyed{0};
std::atomic<int> aborted{0};
std::atomic<int> made_ids{0};

constexpr int kFirstTag = 1 << 20;  // beyond those of the program

struct Id {
  int world_rank;
  int tag;
};

/// Whether the message was there before the communicator was aborted.
bool poll(const StandInComm* comm, const std::function<bool()>& there) {
  while (!there()) {
    if (comm != nullptr && comm->aborted) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

bool receive(const StandInComm* comm, int from, int tag, Bytes& bytes) {
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  const bool there = poll(comm, [&] {
    int found = 0;
    MPI_Improbe(from, tag, MPI_COMM_WORLD, &found, &message, &status);
    return found != 0;
  });
  if (!there) return false;
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  bytes.resize(static_cast<std::size_t>(count));
  MPI_Mrecv(bytes.data(), count, MPI_BYTE, &message, MPI_STATUS_IGNORE);
  return true;
}

void run(StandInComm& comm, const std::vector<Operation>& operations) {
  std::vector<MPI_Request> requests;
  for (const Operation& operation : operations) {
    for (const auto& [to, data, bytes] : operation.sends) {
      requests.push_back(MPI_REQUEST_NULL);
      MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE,
                comm.world_ranks[static_cast<std::size_t>(to)], comm.tag, MPI_COMM_WORLD,
                &requests.back());
    }
  }
  std::vector<std::vector<Bytes>> arrived(operations.size());
  for (std::size_t i = 0; i < operations.size(); ++i) {
    for (const auto& [from, bytes] : operations[i].receives) {
      Bytes& data = arrived[i].emplace_back();
      const int source = comm.world_ranks[static_cast<std::size_t>(from)];
      if (!receive(&comm, source, comm.tag, data)) return;
      if (data.size() == bytes) continue;
      comm.state = ncclInvalidArgument;
      data.resize(bytes);
    }
  }
  const bool left = poll(&comm, [&] {
    int done = 0;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                MPI_STATUSES_IGNORE);
    return done != 0;
  });
  for (std::size_t i = 0; left && i < operations.size(); ++i) {
    if (operations[i].finish) operations[i].finish(arrived[i]);
  }
}

/// The members tell the one who made the identifier, which is the first, where they are.
ncclResult_t connect(const Connection& wanted) {
  Id id{};
  std::memcpy(&id, wanted.id.internal, sizeof(id));
  auto comm = std::make_unique<StandInComm>();
  comm->rank = wanted.rank;
  comm->tag = id.tag;
  comm->world_ranks.resize(static_cast<std::size_t>(wanted.size));
  int here = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &here);
  const auto bytes = wanted.size * static_cast<int>(sizeof(int));
  if (wanted.rank == 0) {
    if (here != id.world_rank) return ncclInvalidArgument;
    comm->world_ranks[0] = here;
    for (int i = 1; i < wanted.size; ++i) {
      Bytes hello;
      receive(nullptr, MPI_ANY_SOURCE, id.tag, hello);
      int who[2];
      std::memcpy(who, hello.data(), sizeof(who));
      comm->world_ranks[static_cast<std::size_t>(who[0])] = who[1];
    }
    for (int i = 1; i < wanted.size; ++i)
      MPI_Send(comm->world_ranks.data(), bytes, MPI_BYTE,
               comm->world_ranks[static_cast<std::size_t>(i)], id.tag, MPI_COMM_WORLD);
  } else {
    const int hello[2] = {wanted.rank, here};
    MPI_Send(hello, sizeof(hello), MPI_BYTE, id.world_rank, id.tag, MPI_COMM_WORLD);
    Bytes reply;
    receive(nullptr, id.world_rank, id.tag, reply);
    std::memcpy(comm->world_ranks.data(), reply.data(), reply.size());
  }
  ++connected;
  *wanted.comm = comm.release();
  return ncclSuccess;
}

ncclResult_t connect_all() {
  const auto wanted = std::exchange(connections, {});
  std::vector<ncclResult_t> results(wanted.size(), ncclSuccess);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    threads.emplace_back([&, i] { results[i] = connect(wanted[i]); });
  for (std::thread& thread : threads) thread.join();
  for (const ncclResult_t result : results)
    if (result != ncclSuccess) return result;
  return ncclSuccess;
}

/// One task per communicator; each must be on one stream, which has been held back until
/// the program's own work is done.
ncclResult_t launch_all() {
  const auto pending = std::exchange(launches, {});
  while (!connections.empty()) {
    const ncclResult_t result = connect_all();
    if (result != ncclSuccess) return result;
  }
  std::vector<std::pair<ncclComm_t, std::vector<Operation>>> tasks;
  for (const Launch& launch : pending) {
    if (launch.comm == nullptr || launch.stream == nullptr) return ncclInvalidArgument;
    if (!launch.stream->after_exec) return ncclInvalidUsage;
    if (launch.comm->stream != nullptr && launch.comm->stream != launch.stream)
      return ncclInvalidUsage;
    launch.comm->stream = launch.stream;
    if (tasks.empty() || tasks.back().first != launch.comm)
      tasks.push_back({launch.comm, {}});
    tasks.back().second.push_back(launch.operation);
  }
  for (auto& [comm, operations] : tasks) {
    comm->stream->after_exec = false;
    comm->stream->push([comm, operations] { run(*comm, operations); });
  }
  return ncclSuccess;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, Operation operation) {
  ncclGroupStart();
  launches.push_back({comm, stream, std::move(operation)});
  return ncclGroupEnd();
}

std::size_t size_of(ncclDataType_t type) {
  constexpr std::size_t kSizes[] = {1, 4, 8, 2, 4, 8};
  return kSizes[type];
}

template <class T>
void combine_as(std::byte* sum, const std::byte* part, std::size_t bytes, bool add) {
  for (std::size_t i = 0; i < bytes; i += sizeof(T)) {
    T a, b;
    std::memcpy(&a, sum + i, sizeof(T));
    std::memcpy(&b, part + i, sizeof(T));
    a = add ? static_cast<T>(a + b) : std::max(a, b);
    std::memcpy(sum + i, &a, sizeof(T));
  }
}

void combine(Bytes& sum, const Bytes& part, ncclDataType_t type, ncclRedOp_t operation) {
  const bool add = operation == ncclSum;
  switch (type) {
    case ncclUint8:
      return combine_as<std::uint8_t>(sum.data(), part.data(), sum.size(), add);
    case ncclInt32:
      return combine_as<std::int32_t>(sum.data(), part.data(), sum.size(), add);
    case ncclInt64:
      return combine_as<std::int64_t>(sum.data(), part.data(), sum.size(), add);
    case ncclFloat32:
      return combine_as<float>(sum.data(), part.data(), sum.size(), add);
    case ncclFloat64:
      return combine_as<double>(sum.data(), part.data(), sum.size(), add);
    case ncclBfloat16:
      std::abort();  // the program adds in fp32
  }
}

std::function<void(const std::vector<Bytes>&)> store_sum(void* out, ncclDataType_t type,
                                                         ncclRedOp_t operation) {
  return [=](const std::vector<Bytes>& arrived) {
    Bytes sum = arrived.front();
    for (std::size_t p = 1; p < arrived.size(); ++p)
      combine(sum, arrived[p], type, operation);
    if (!sum.empty()) std::memcpy(out, sum.data(), sum.size());
  };
}

std::function<void(const std::vector<Bytes>&)> store_parts(void* out) {
  return [out](const std::vector<Bytes>& arrived) {
    auto* place = static_cast<std::byte*>(out);
    for (const Bytes& part : arrived) {
      if (!part.empty()) std::memcpy(place, part.data(), part.size());
      place += part.size();
    }
  };
}

/// The whole of `in` to every member, the same from each.
Operation everyone_to_all(const StandInComm& comm, const void* in, std::size_t bytes) {
  Operation operation;
  for (int p = 0; p < comm.size(); ++p) {
    operation.sends.push_back({p, in, bytes});
    operation.receives.push_back({p, bytes});
  }
  return operation;
}

}  // namespace

/// In place of MPI's own: the streams send from threads of their own.
extern "C" int MPI_Init_thread(int* argc, char*** argv, int, int* provided) {
  return PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, provided);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Id mine{rank, kFirstTag + made_ids++ * ranks + rank};
  std::memcpy(id->internal, &mine, sizeof(mine));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  ncclGroupStart();
  connections.push_back({comm, size, id, rank});
  return ncclGroupEnd();
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->stream != nullptr) cudaStreamSynchronize(comm->stream);
  ++destroyed;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  if (comm->stream != nullptr) cudaStreamSynchronize(comm->stream);
  ++aborted;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = failure_behind != ncclSuccess ? failure_behind : comm->state;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
         : result == ncclInvalidUsage ? "invalid usage"
                                      : "another error";
}

const char* ncclGetLastError(ncclComm_t) { return "the stand-in's last words"; }

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  const ncclResult_t failure = next_failure.exchange(ncclSuccess);
  if (failure == ncclSuccess) return launch_all();
  launches.clear();
  connections.clear();
  return failure;
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count,
                           ncclDataType_t type, ncclRedOp_t operation, ncclComm_t comm,
                           cudaStream_t stream) {
  Operation all = everyone_to_all(*comm, in, count * size_of(type));
  all.finish = store_sum(out, type, operation);
  return add(comm, stream, std::move(all));
}

ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  Operation reduce;
  reduce.sends = {{root, in, bytes}};
  if (comm->rank == root) {
    for (int p = 0; p < comm->size(); ++p) reduce.receives.push_back({p, bytes});
    reduce.finish = store_sum(out, type, operation);
  }
  return add(comm, stream, std::move(reduce));
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  Operation broadcast;
  for (int p = 0; comm->rank == root && p < comm->size(); ++p)
    broadcast.sends.push_back({p, in, bytes});
  broadcast.receives = {{root, bytes}};
  broadcast.finish = store_parts(out);
  return add(comm, stream, std::move(broadcast));
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count,
                           ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  Operation gather = everyone_to_all(*comm, in, count * size_of(type));
  gather.finish = store_parts(out);
  return add(comm, stream, std::move(gather));
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  Operation scatter;
  for (int p = 0; p < comm->size(); ++p) {
    scatter.sends.push_back(
        {p, static_cast<const std::byte*>(in) + static_cast<std::size_t>(p) * bytes,
         bytes});
    scatter.receives.push_back({p, bytes});
  }
  scatter.finish = store_sum(out, type, operation);
  return add(comm, stream, std::move(scatter));
}

ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int to,
                      ncclComm_t comm, cudaStream_t stream) {
  Operation send;
  send.sends = {{to, in, count * size_of(type)}};
  return add(comm, stream, std::move(send));
}

ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int from,
                      ncclComm_t comm, cudaStream_t stream) {
  Operation receive;
  receive.receives = {{from, count * size_of(type)}};
  receive.finish = store_parts(out);
  return add(comm, stream, std::move(receive));
}

namespace stand_in {

Calls calls() { return {connected, destroyed, aborted, live_streams, live_events}; }
void fail_next(ncclResult_t result) { next_failure = result; }
void fail_behind(ncclResult_t result) { failure_behind = result; }

}  // namespace stand_in
