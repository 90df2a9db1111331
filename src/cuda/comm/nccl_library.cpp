#include "cuda/comm/nccl_library.h"

#include "base/error.h"

namespace echelon::cuda {
namespace {

void* found(const NcclSource& source, const char* name) {
  void* const address = source.find(name);
  require(address != nullptr, "libnccl.so.2 has no {} (use NCCL 2.18 or newer)", name);
  return address;
}

}  // namespace

NcclFunctions functions_of(const NcclSource& source) {
  require(static_cast<bool>(source.find),
          "several ranks with a GPU each need NCCL, but {} (add its folder to LD_LIBRARY_PATH, or use one GPU)",
          source.reason);
  NcclFunctions functions;
#define ECHELON_FIND(theirs, ours) functions.ours = reinterpret_cast<decltype(&theirs)>(found(source, #theirs));
  ECHELON_NCCL_FUNCTIONS(ECHELON_FIND)
#undef ECHELON_FIND
#define ECHELON_FIND(theirs, ours) functions.ours = reinterpret_cast<decltype(&theirs)>(source.find(#theirs));
  ECHELON_NEWER_NCCL_FUNCTIONS(ECHELON_FIND)
#undef ECHELON_FIND
  return functions;
}

const NcclFunctions& nccl() {
  static const NcclFunctions functions = functions_of(open_nccl());
  return functions;
}

}  // namespace echelon::cuda
