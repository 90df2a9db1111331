// The backend for NVIDIA GPUs is a library of its own, libechelon_cuda.so, loaded when a run asks for it: a machine
// without CUDA starts the same program, and a machine with it does not wait for half a gigabyte of libraries before
// `--help`.
#pragma once

#include "backend/backend.h"

namespace echelon {

/// The one function that the library exports, under this name. Caught inside: null and why not, where there is no
/// usable GPU.
inline constexpr const char* plugin_entry = "echelon_open_backend_3";
using PluginEntry = Backend* (*)(std::string& reason);

struct LoadedPlugin {
  std::unique_ptr<Backend> backend;
  std::string reason;  // a clause, why there is none
};

/// Looks beside the program, in ../lib/echelon, and where ECHELON_CUDA_PLUGIN says. The library stays loaded.
[[nodiscard]] LoadedPlugin load_cuda_plugin();

/// Whether this machine has an NVIDIA driver; costs nothing.
[[nodiscard]] bool has_nvidia_driver();

}  // namespace echelon
