// NCCL as far as Echelon calls it, between threads of one process on emulated devices. An operation begins when all its
// ranks' streams have come to it, as the kernels of NCCL do: ranks that wait for each other in a circle wait for ever.
// Communicators are nonblocking: what was started is on its stream when ncclCommGetAsyncError has said ncclSuccess,
// which for the first operation among ranks it does when all of them have started it.
#pragma once

#include "cuda_runtime.h"

constexpr int NCCL_UNIQUE_ID_BYTES = 128;
struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};
struct ncclComm;
using ncclComm_t = ncclComm*;
struct ncclConfig_t {
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER \
  { 1 }

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclDataType_t {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9
};
enum ncclRedOp_t { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3 };

const char* ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int num_ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
/// In progress until all ranks have called it, and this rank's streams have done what they have of the communicator.
ncclResult_t ncclCommFinalize(ncclComm_t comm);
/// Both free the communicator when this rank's streams have done what they have of it and no graph holds any of it:
/// where it is finalized at once, else in a thread of NCCL's, a while later. Where that would take for ever the process
/// dies.
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count_of_shard, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count_of_shard, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();

namespace emulated {

/// What every communicator says from now on when it is asked for errors.
void set_nccl_error(ncclResult_t error);
/// Of a device, for each communicator of a rank on it.
constexpr std::int64_t bytes_of_a_communicator = std::int64_t{16} << 20;
/// Communicators that are not freed.
[[nodiscard]] int num_communicators();
/// Launches of collectives so far: those of a communicator in a group are one.
[[nodiscard]] int num_nccl_launches();

}  // namespace emulated
