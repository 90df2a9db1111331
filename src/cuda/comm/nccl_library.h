// NCCL, which is loaded when the first communicator is made and not linked: one GPU works without it.
#pragma once

#include <nccl.h>

#include <functional>
#include <string>

namespace echelon::cuda {

// f(the name in nccl.h, and ours)
#define ECHELON_NCCL_FUNCTIONS(f)                                                                                   \
  f(ncclGetErrorString, error_string) f(ncclGetVersion, get_version) f(ncclGetUniqueId, get_unique_id)              \
      f(ncclCommInitRankConfig, init_rank) f(ncclCommSplit, split) f(ncclCommFinalize, finalize)                    \
          f(ncclCommDestroy, destroy) f(ncclCommAbort, abort) f(ncclCommGetAsyncError, get_async_error)             \
              f(ncclAllReduce, all_reduce) f(ncclAllGather, all_gather) f(ncclReduceScatter, reduce_scatter)        \
                  f(ncclBroadcast, broadcast) f(ncclSend, send) f(ncclRecv, receive) f(ncclGroupStart, group_start) \
                      f(ncclGroupEnd, group_end)

// Of newer libraries: each null where it does not exist.
#define ECHELON_NEWER_NCCL_FUNCTIONS(f)                                                          \
  f(ncclMemAlloc, mem_alloc) f(ncclMemFree, mem_free) f(ncclCommWindowRegister, register_window) \
      f(ncclCommWindowDeregister, deregister_window)

struct NcclFunctions {
#define ECHELON_MEMBER(theirs, ours) decltype(&theirs) ours = nullptr;
  ECHELON_NCCL_FUNCTIONS(ECHELON_MEMBER)
  ECHELON_NEWER_NCCL_FUNCTIONS(ECHELON_MEMBER)
#undef ECHELON_MEMBER
};

/// Where NCCL's functions are found by name, each null if it does not exist.
struct NcclSource {
  std::function<void*(const char*)> find;  // empty: there is no library
  std::string reason;                      // then why, as a clause
};

/// The machine's libnccl.so.2.
[[nodiscard]] NcclSource open_nccl();
/// Throws Error if there is no library, or if it lacks a function.
[[nodiscard]] NcclFunctions functions_of(const NcclSource& source);

/// Opens the library at the first call. Throws Error like functions_of.
[[nodiscard]] const NcclFunctions& nccl();

}  // namespace echelon::cuda
