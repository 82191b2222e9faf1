// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What of NCCL its back end uses, over point-to-point messages of MPI. Differs
/// from NCCL where that leaves behaviour open: members that disagree on a count get an
/// error.

#include <cstddef>

#include <cuda_runtime.h>

#define NCCL_VERSION_CODE 22800

struct StandInComm;
using ncclComm_t = StandInComm*;
struct ncclUniqueId {
  char internal[128];
};
enum ncclResult_t {
  ncclSuccess = 0,
  ncclSystemError = 2,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6
};
enum ncclDataType_t {
  ncclUint8,
  ncclInt32,
  ncclInt64,
  ncclBfloat16,
  ncclFloat32,
  ncclFloat64
};
enum ncclRedOp_t { ncclSum, ncclMax };

ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count,
                           ncclDataType_t type, ncclRedOp_t operation, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t comm,
                        cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count,
                           ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int to,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int from,
                      ncclComm_t comm, cudaStream_t stream);

/// \brief For tests: what has happened in this process, and what is to fail.
namespace stand_in {

struct Calls {
  int connected = 0;
  int destroyed = 0;
  int aborted = 0;
  int streams = 0;  ///< that live
  int events = 0;
};
Calls calls();
/// The next call that launches or connects returns this.
void fail_next(ncclResult_t result);
/// Every communicator has this error from now on; ncclSuccess: none.
void fail_behind(ncclResult_t result);

}  // namespace stand_in
