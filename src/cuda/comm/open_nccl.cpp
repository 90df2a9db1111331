#include "cuda/comm/nccl_library.h"

#include <dlfcn.h>

namespace echelon::cuda {

// It stays loaded.
NcclSource open_nccl() {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {.find = {}, .reason = dlerror()};
  return {.find = [library](const char* name) { return dlsym(library, name); }, .reason = {}};
}

}  // namespace echelon::cuda
