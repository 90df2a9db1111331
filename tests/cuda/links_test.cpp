// What echelon bench measures between GPUs, on emulated ones: every collective, among two of them and among all.
#include "cuda/cuda_backend.h"
#include "cuda/emulated/runtime.h"
#include "measure/measure_device.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace echelon {
namespace {

TEST(GpuLinks, AreMeasuredAmongTwoAndAmongAll) {
  for (const int num_gpus : {1, 3}) {
    emulated::set_num_devices(num_gpus);
    std::string reason;
    const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
    ASSERT_NE(backend, nullptr) << reason;
    EXPECT_EQ(backend->num_devices(), num_gpus);
    const auto curves = measure_links(*backend, {.largest_size = 96, .sample_seconds = 0, .num_rounds = 1});
    std::set<std::pair<Collective, std::int64_t>> measured;
    for (const CollectiveCurve& curve : curves) {
      measured.insert({curve.collective, curve.num_ranks});
      EXPECT_EQ(curve.bytes, std::vector<double>{4096});  // the next size would be 64 KiB, above 96 x 96
      ASSERT_EQ(curve.seconds.size(), 1U);
      EXPECT_GT(curve.seconds.front(), 0);
    }
    EXPECT_EQ(measured.size(), num_gpus == 1 ? 0U : 8U);  // four collectives among two and among three
    emulated::set_num_devices(1);
  }
}

}  // namespace
}  // namespace echelon
