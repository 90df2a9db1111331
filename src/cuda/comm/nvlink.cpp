#include "cuda/comm/nvlink.h"

#include "cuda/device/status.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <numeric>

namespace echelon::cuda {
namespace {

bool has(cudaDeviceP2PAttr attribute, int from, int to) {
  int value = 0;
  check(cudaDeviceGetP2PAttribute(&value, attribute, from, to), "how GPUs are joined");
  return value != 0;
}

}  // namespace

std::vector<int> order_by_islands(int num_gpus, const std::function<bool(int, int)>& are_linked) {
  std::vector<int> island(static_cast<std::size_t>(num_gpus));  // the lowest GPU of each one's
  std::iota(island.begin(), island.end(), 0);
  for (int a = 0; a < num_gpus; ++a)
    for (int b = a + 1; b < num_gpus; ++b) {
      const auto [low, high] = std::minmax({island[static_cast<std::size_t>(a)], island[static_cast<std::size_t>(b)]});
      if (low != high && are_linked(a, b)) std::replace(island.begin(), island.end(), int{high}, int{low});
    }
  const auto size = [&](int gpu) {
    return std::count(island.begin(), island.end(), island[static_cast<std::size_t>(gpu)]);
  };
  std::vector<int> order(island.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    if (size(a) != size(b)) return size(a) > size(b);
    return island[static_cast<std::size_t>(a)] < island[static_cast<std::size_t>(b)];
  });
  return order;
}

bool are_linked_by_nvlink(int a, int b) {
  return has(cudaDevP2PAttrAccessSupported, a, b) && has(cudaDevP2PAttrNativeAtomicSupported, a, b);
}

}  // namespace echelon::cuda
