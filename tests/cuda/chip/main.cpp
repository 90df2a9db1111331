// Tests of the backend as a run loads it, on the GPU of this machine; on the emulated device with
// ECHELON_CUDA_PLUGIN=libechelon_cuda_emulated.so. No part of the whole run of tests: benchmarks/gpu/first_run starts
// it. Exits with 77 where there is no GPU. `--attention=own` asks no cuDNN; the end says what computed attention.
#include "cuda/chip/chip.h"

#include "base/error.h"
#include "comm/thread/thread_world.h"

#include <gtest/gtest.h>

#include <string_view>

namespace echelon::chip {
namespace {

constexpr int skipped = 77;
Backend* open_for_all = nullptr;
RankDevice* device_for_all = nullptr;

int run_on_device(AttentionKernels attention) {
  int status = skipped;
  std::unique_ptr<Backend> backend;
  try {
    backend = open_backend(DeviceChoice::cuda, "the device");
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return status;
  }
  open_for_all = backend.get();
  run_thread_ranks(MeshShape(), {}, [&](Mesh& host) {
    const std::unique_ptr<RankDevice> device = backend->open(host, {.attention = attention});
    fmt::print("{}\n", device->description());
    device_for_all = device.get();
    status = RUN_ALL_TESTS();
    fmt::print("{}\n", device->choices());
  });
  return status;
}

}  // namespace

Backend& backend() { return *open_for_all; }
RankDevice& device() { return *device_for_all; }

}  // namespace echelon::chip

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  const bool has_own_attention = count > 1 && std::string_view(arguments[1]) == "--attention=own";
  return echelon::chip::run_on_device(has_own_attention ? echelon::AttentionKernels::own
                                                        : echelon::AttentionKernels::automatic);
}
