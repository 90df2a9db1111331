#include "backend/backend.h"

#include "backend/cpu_backend.h"
#include "backend/plugin.h"
#include "base/error.h"

namespace echelon {

std::string_view name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu: return "cpu";
    case DeviceKind::cuda: return "cuda";
  }
  return "?";
}

std::unique_ptr<Backend> open_backend(DeviceChoice device, std::string_view key) {
  const bool is_automatic = device == DeviceChoice::automatic;
  if (device == DeviceChoice::cuda || (is_automatic && has_nvidia_driver())) {
    LoadedPlugin cuda = load_cuda_plugin();
    if (cuda.backend) return std::move(cuda.backend);
    require(is_automatic, "{} = cuda, but {} (use cpu)", key, cuda.reason);
    return make_cpu_backend(fmt::format("; no GPU is used, because {}", cuda.reason));
  }
  return make_cpu_backend();
}

}  // namespace echelon
