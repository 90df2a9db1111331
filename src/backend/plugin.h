// The backend for NVIDIA GPUs is a separate library, libechelon_cuda.so, which is loaded when a run needs it. So the
// program also starts on a machine without CUDA, and `--help` does not load half a gigabyte of libraries.
#pragma once

#include "backend/backend.h"

namespace echelon {

/// The one function that the library exports, under this name. Caught inside: null and why not, where there is no
/// usable GPU.
inline constexpr const char* plugin_entry = "echelon_open_backend_4";
using PluginEntry = Backend* (*)(std::string& reason);

struct LoadedPlugin {
  std::unique_ptr<Backend> backend;
  std::string reason;  // a clause, why there is none
};

/// Searches the program's folder, ../lib/echelon, and the path in ECHELON_CUDA_PLUGIN. The library stays loaded.
[[nodiscard]] LoadedPlugin load_cuda_plugin();

/// Whether this machine has an NVIDIA driver; costs nothing.
[[nodiscard]] bool has_nvidia_driver();

}  // namespace echelon
