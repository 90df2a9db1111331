#include "cuda/device/queues.h"

#include "base/error.h"

#include <cstdlib>

namespace echelon::cuda {
namespace {

constexpr const char* variable = "CUDA_DEVICE_MAX_CONNECTIONS";

}  // namespace

void request_queues() { setenv(variable, "32", 0); }

void require_queues(int num_streams) {
  const char* const asked = std::getenv(variable);
  require(asked == nullptr || std::strtol(asked, nullptr, 10) >= num_streams,
          "{} = '{}', but a rank of this run has {} streams, and those of NCCL wait for each other where they share a "
          "queue (leave it unset, which is 32)",
          variable, asked, num_streams);
}

}  // namespace echelon::cuda
