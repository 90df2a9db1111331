// Preloaded into the program: gives the emulated machine as many GPUs as EMULATED_GPUS says when the plug-in is loaded,
// so that each rank has its own and NCCL connects them. Works with any commit whose emulation has set_num_devices.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void* dlopen(const char* file, int mode) {
  void* (*real)(const char*, int) = dlsym(RTLD_NEXT, "dlopen");
  void* const library = real(file, mode);
  const char* const count = getenv("EMULATED_GPUS");
  if (library == NULL || file == NULL || count == NULL || strstr(file, "cuda_emulated") == NULL) return library;
  void (*set_num_devices)(int) = dlsym(library, "_ZN8emulated15set_num_devicesEi");
  if (set_num_devices == NULL) abort();  // all ranks would share one GPU, and nobody would know
  set_num_devices(atoi(count));
  return library;
}
