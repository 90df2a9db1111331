// Attention in a ring of eight GPUs, as published with ring-flash-attention (github.com/zhuzilin/ring-flash-attention,
// README): the heads of Llama-3.1-8B and 8,192 tokens per GPU. Efficiency: the time of as much attention on one GPU
// alone, over that of the ring. The ring and its hops are Echelon's; what that software's kernels do instead of ours is
// said here.
#include "predict/machine/device_time.h"
#include "predict/step/action_cost.h"
#include "spec/groups.h"
#include "spec/machine/machine_spec.h"

#include <gtest/gtest.h>

#include <utility>

namespace echelon {
namespace {

constexpr std::int64_t num_ranks = 8, tokens = 8192, heads = 32, kv_heads = 8, width = 128;

// Merging is compiled by torch.jit and here taken as not fused, which suits the measured times: a kernel for each step,
// two casts, two products with a factor per row, a sum. What is merged into some rows only, as with stripes, is copied
// into them afterwards.
constexpr std::int64_t merge_bytes = 34, copy_bytes = 8;  // per value of the output

// Attention from all queries but the first to all keys but the last: 8,191 are no multiple of the kernel's tiles.
// Estimated from the stripes on A100; those on H800 check it.
constexpr double uneven_length = 1.16;

RunConfig config_of(std::int64_t cp, LoadBalancer balancer) {
  RunConfig config;
  config.model = preset("llama3-8b");
  config.model.hidden_size = 2 * width;  // so that no sum but those of attention is as large
  config.model.max_position_embeddings = config.training.seq_len = cp * tokens;
  config.training.global_batch_size = config.training.micro_batch_size = 1;
  config.training.dtype = DType::bfloat16;
  config.parallelism.context_parallel_degree = cp;
  config.parallelism.context_parallel_load_balancer = balancer;
  return config;
}

bool is_kernel(const OpRecord& op) { return op.kind == OpKind::attention || op.kind == OpKind::attention_backward; }

/// A sum or copy of attention's output or gradients.
bool is_sum(const OpRecord& op) {
  const std::int64_t values = op.m * op.n;
  return (op.kind == OpKind::add || op.kind == OpKind::copy) &&
         (values == tokens * heads * width || values == tokens * kv_heads * width);
}

struct Gpus {
  NodeSpec node;

  [[nodiscard]] double seconds_of_pass(std::int64_t cp, LoadBalancer balancer, PassKind pass) const {
    UnitTraces traces(config_of(cp, balancer));
    const CallTrace& trace = traces.passes({.role = UnitKind::Role::block}, 0).of(pass, true);
    int num_attended = 0;
    bool was_kernel = false;
    const CostEvents events = cost_events(trace, [&](OpRecord op) {
      if (is_kernel(op)) ++num_attended;
      const bool is_shifted = balancer == LoadBalancer::striped && num_attended > 1,
                 merges = std::exchange(was_kernel, is_kernel(op)) && num_attended > 1 && pass == PassKind::forward;
      if (merges) op.bytes = (merge_bytes + (is_shifted ? copy_bytes : 0)) * tokens * heads * width;
      if (!is_kernel(op) && !is_sum(op) && !merges) return 0.0;
      return operation_seconds(op, node.device) * (is_shifted && is_kernel(op) ? uneven_length : 1);
    });
    return events.seconds([&](const CommRecord& record) {
      return record.group.axes == cp_group.axes
                 ? static_cast<double>(record.sent_bytes) / (node.link.bandwidth * node.link.efficiency)
                 : 0;
    });
  }

  [[nodiscard]] double efficiency(LoadBalancer balancer, bool has_backward) const {
    double alone = 0, ring = 0;
    for (const PassKind pass : {PassKind::forward, PassKind::backward}) {
      if (pass == PassKind::backward && !has_backward) continue;
      alone += num_ranks * seconds_of_pass(1, LoadBalancer::headtail, pass);
      ring += seconds_of_pass(num_ranks, balancer, pass);
    }
    return 100 * alone / ring;
  }
};

/// With FlashAttention-2, which reaches 73 % of an A100's peak and 35 % of a Hopper GPU's.
Gpus gpus(const char* machine, double attention_efficiency) {
  Gpus gpus = {read_machine(machine).nodes.front()};
  gpus.node.device.formats.at("bfloat16").attention_efficiency = attention_efficiency;
  return gpus;
}

struct Published {
  LoadBalancer balancer;
  bool has_backward;
  double a100, h800;  // per cent
};

TEST(PublishedRings, AreWithinFourPoints) {
  const Gpus a100 = gpus("a100-80", 0.73), h800 = gpus("h800", 0.35);
  for (const Published& row :
       {Published{LoadBalancer::headtail, false, 81.7, 85.2}, Published{LoadBalancer::headtail, true, 89.8, 90.2},
        Published{LoadBalancer::striped, false, 69.6, 74.4}, Published{LoadBalancer::striped, true, 82.6, 82.9}}) {
    EXPECT_NEAR(a100.efficiency(row.balancer, row.has_backward), row.a100, 4) << name_of(row.balancer);
    EXPECT_NEAR(h800.efficiency(row.balancer, row.has_backward), row.h800, 4) << name_of(row.balancer);
  }
}

}  // namespace
}  // namespace echelon
