// The emulated NCCL in place of the machine's.
#include "cuda/comm/nccl_library.h"

#include <map>

namespace echelon::cuda {

NcclSource open_nccl() {
  static const std::map<std::string, void*> functions = {
#define ECHELON_ENTRY(theirs, ours) {#theirs, reinterpret_cast<void*>(&theirs)},
      ECHELON_NCCL_FUNCTIONS(ECHELON_ENTRY) ECHELON_NEWER_NCCL_FUNCTIONS(ECHELON_ENTRY)
#undef ECHELON_ENTRY
  };
  return {.find = [](const char* name) { return functions.at(name); }, .reason = {}};
}

}  // namespace echelon::cuda
