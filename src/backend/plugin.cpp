#include "backend/plugin.h"

#include "base/error.h"

#include <dlfcn.h>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace echelon {
namespace {

constexpr const char* file_name = "libechelon_cuda.so";

std::vector<std::filesystem::path> candidates() {
  if (const char* chosen = std::getenv("ECHELON_CUDA_PLUGIN"); chosen != nullptr && *chosen != '\0') return {chosen};
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  return {folder / file_name, folder / ".." / "lib" / "echelon" / file_name};
}

}  // namespace

LoadedPlugin load_cuda_plugin() {
  const std::vector<std::filesystem::path> places = candidates();
  for (const std::filesystem::path& path : places) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      return {nullptr,
              fmt::format("'{}' cannot be loaded: {} (LD_LIBRARY_PATH must have the folders of CUDA's libraries)",
                          path.string(), dlerror())};
    const auto entry = reinterpret_cast<PluginEntry>(dlsym(library, plugin_entry));
    if (entry == nullptr) return {nullptr, fmt::format("'{}' is of another version of Echelon", path.string())};
    LoadedPlugin loaded;
    loaded.backend.reset(entry(loaded.reason));
    return loaded;
  }
  return {nullptr, fmt::format("there is no '{}'; scripts/build cuda builds it where nvcc is installed",
                               places.front().string())};
}

bool has_nvidia_driver() {
  std::error_code error;
  return std::filesystem::exists("/dev/nvidiactl", error);
}

}  // namespace echelon
