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
struct ncclWindow_vidmem;
using ncclWindow_t = ncclWindow_vidmem*;
constexpr int NCCL_WIN_DEFAULT = 0, NCCL_WIN_COLL_SYMMETRIC = 1, NCCL_WIN_REQUIRED_ALIGNMENT = 4096;
constexpr int NCCL_CONFIG_UNDEF_INT = -2147483647 - 1, NCCL_SPLIT_NOCOLOR = -1;
struct ncclConfig_t {
  int blocking;
  int minCTAs, maxCTAs;
  int splitShare;
};
#define NCCL_CONFIG_INITIALIZER \
  { 1, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT }

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
/// All ranks of `comm` call it, in one order with other splits, and `comm` is in progress until they have. `child` is
/// null until then, and for NCCL_SPLIT_NOCOLOR. With splitShare in the parent's configuration the two share what is
/// connected, and their operations take turns on a device in the order in which they are started.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t* config);
/// Of the current device, in pages of 2 MiB. What is registered with a communicator cannot be freed.
ncclResult_t ncclMemAlloc(void** address, std::size_t num_bytes);
ncclResult_t ncclMemFree(void* address);
/// Of memory that ncclMemAlloc gave. A window is one of all ranks: in progress until all have called it, with as many
/// bytes, at one place of what was allocated. From then on collectives have their buffers in it at equal offsets where
/// a peer's is written or read. Both end before their communicator does, unless that is aborted.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buffer, std::size_t num_bytes, ncclWindow_t* window,
                                    int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);
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
/// Of a device, for each communicator of a rank on it: buffers for every block, which it has as many of as it may. One
/// that shares them needs more only for neighbours in its ring that no other of its family has.
constexpr std::int64_t most_blocks = 32, bytes_of_a_block = std::int64_t{1} << 19;
constexpr std::int64_t bytes_of_a_communicator = most_blocks * bytes_of_a_block;
/// Communicators that are not freed.
[[nodiscard]] int num_communicators();
/// Those that were split from another one so far, and of these those that share buffers.
struct Splits {
  int all = 0, sharing = 0;
};
[[nodiscard]] Splits num_splits();
/// Windows that ranks have registered and not deregistered, and collectives so far that were in one.
[[nodiscard]] int num_windows();
[[nodiscard]] int num_collectives_in_windows();
/// What ncclMemAlloc says from now on.
void set_nccl_memory_error(ncclResult_t error);
/// Launches of collectives so far: those of a communicator in a group are one.
[[nodiscard]] int num_nccl_launches();

}  // namespace emulated
