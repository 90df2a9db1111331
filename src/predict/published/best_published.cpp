#include "predict/published/best_published.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::string_view llm_foundry = "llm-foundry, scripts/train/benchmarking, 8c8dd48f7",
                           fms_fsdp = "fms-fsdp, README, 5a296af", dgxc = "NVIDIA dgxc-benchmarking, v25.04.02",
                           megatron_core = "Megatron-LM, README, d98e8a64dd",
                           korthikanti = "Korthikanti et al. 2022, arXiv:2205.05198, table 5",
                           torchtitan = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, b5bcd76c6",
                           torchtitan_tp = "torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md";

// The best run in 16 bits of each GPU and size. Where a source states only seconds or tokens per second, the
// utilisation is that of model_spec.h's flops; where it states another one for the same run, this is the source's.
constexpr BestPublished published_runs[] = {
    {"A100", 0.76, 0.557, llm_foundry},
    {"A100", 1.3, 0.601, llm_foundry},
    {"A100", 2.65, 0.637, llm_foundry},
    {"A100", 6.66, 0.642, llm_foundry},
    {"A100", 13, 0.601, fms_fsdp},
    {"A100", 33.7, 0.579, fms_fsdp},
    {"A100", 64.9, 0.533, llm_foundry},
    // A changed model: attention and the feed-forward layer read the same input.
    {"A100", 175, 0.653, "MegaScale, Jiang et al. 2024, arXiv:2402.15627, table 2, a changed model"},
    {"A100", 530, 0.560, korthikanti},
    {"A100", 1000, 0.563, korthikanti},
    {"H100", 0.76, 0.404, llm_foundry},
    {"H100", 1.3, 0.432, llm_foundry},
    {"H100", 2.65, 0.463, llm_foundry},
    {"H100", 6.66, 0.464, llm_foundry},
    {"H100", 15.6, 0.585, dgxc},
    {"H100", 32, 0.464, megatron_core},
    {"H100", 70.6, 0.516, dgxc},
    {"H100", 175, 0.536, dgxc},
    {"H100", 462, 0.465, megatron_core},
    {"H100 SXM5 96", 8.03, 0.390, torchtitan},
    {"H100 SXM5 96", 70.6, 0.317, torchtitan_tp},
    // 39 of 125 TFLOP/s; less if those include recomputation, which the paper leaves open.
    {"V100", 1.2, 0.312, "Shoeybi et al. 2019, arXiv:1909.08053, section 5"},
};

/// The best entry that `is_wanted` of those with the longest name that the device's starts with.
template <class F>
std::optional<BestPublished> best_of(const DeviceSpec& device, F&& is_wanted) {
  std::size_t longest = 0;
  for (const BestPublished& each : published_runs)
    if (device.name.starts_with(each.gpu)) longest = std::max(longest, each.gpu.size());
  std::optional<BestPublished> best;
  for (const BestPublished& each : published_runs)
    if (longest > 0 && each.gpu.size() == longest && device.name.starts_with(each.gpu) && is_wanted(each) &&
        (!best || each.mfu > best->mfu))
      best = each;
  return best;
}

}  // namespace

std::optional<BestPublished> best_published_at(const DeviceSpec& device, double num_parameters) {
  const double billions = num_parameters / 1e9;
  return best_of(device, [&](const BestPublished& each) {
    return each.billions <= 2 * billions && billions <= 2 * each.billions;
  });
}

std::optional<BestPublished> best_published(const DeviceSpec& device) {
  return best_of(device, [](const BestPublished&) { return true; });
}

}  // namespace echelon
