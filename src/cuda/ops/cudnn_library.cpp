#include "cuda/ops/cudnn_library.h"

#include <dlfcn.h>

namespace echelon::cuda {

void* cudnn_library() {
  static void* const library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  return library;
}

}  // namespace echelon::cuda
