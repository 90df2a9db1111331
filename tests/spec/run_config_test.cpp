#include "spec/config/run_config.h"

#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace echelon {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

RunConfig example_run() {
  RunConfig config;
  config.model = preset("llama-1m");  // 4 layers, 4 heads, 512 positions
  config.training.global_batch_size = 24;
  config.training.micro_batch_size = 2;
  config.parallelism.data_parallel_shard_degree = 6;
  config.parallelism.pipeline_parallel_degree = 2;
  config.parallelism.tensor_parallel_degree = 4;
  return config;
}

TEST(RunConfig, DerivedValues) {
  const RunConfig config = example_run();
  EXPECT_NO_THROW(validate(config));
  EXPECT_EQ(config.mesh_shape(), MeshShape({{Axis::pp, 2}, {Axis::dp_shard, 6}, {Axis::tp, 4}}));
  EXPECT_EQ(config.data_parallel_degree(), 6);
  EXPECT_EQ(config.num_microbatches(), 2);
}

TEST(RunConfig, SequenceParallelWithOneRankIsHarmless) {
  RunConfig config = example_run();
  config.parallelism.tensor_parallel_degree = 1;
  config.parallelism.sequence_parallel = true;
  EXPECT_NO_THROW(validate(config));
}

struct Contradiction {
  const char* sentence;
  void (*make)(RunConfig&);
};

class Contradictions : public testing::TestWithParam<Contradiction> {};

TEST_P(Contradictions, AreRefusedWithKeyValueAndNearest) {
  RunConfig config = example_run();
  GetParam().make(config);
  EXPECT_THAT([&] { validate(config); }, ThrowsMessage<Error>(HasSubstr(GetParam().sentence)));
}

constexpr double infinity = std::numeric_limits<double>::infinity(),
                 not_a_number = std::numeric_limits<double>::quiet_NaN();

const Contradiction batch_faults[] = {
    {"training.steps = 0 is below 1 (use 1)", [](RunConfig& c) { c.training.steps = 0; }},
    {"training.seq_len = 513 is more than model.max_position_embeddings = 512; did you mean 512?",
     [](RunConfig& c) { c.training.seq_len = 513; }},
    {"training.global_batch_size = 25 is not a multiple of 12 = 6 data-parallel ranks x training.micro_batch_size 2 "
     "(use 24)",
     [](RunConfig& c) { c.training.global_batch_size = 25; }},
    {"(use 36)", [](RunConfig& c) { c.training.global_batch_size = 35; }},
    {"training.global_batch_size = 1 is not a multiple of 12 = 6 data-parallel ranks x training.micro_batch_size 2 "
     "(use 12)",
     [](RunConfig& c) { c.training.global_batch_size = 1; }},
    {"training.grad_dtype = 'bfloat16' is not supported with training.dtype = 'float32', only float32 (use 'float32')",
     [](RunConfig& c) { c.training.grad_dtype = DType::bfloat16; }},
    {"training.reduce_dtype = 'bfloat16' is not supported with training.dtype = 'float16', only float32 or float16 "
     "(use 'float16')",
     [](RunConfig& c) {
       c.training.dtype = DType::float16;
       c.training.reduce_dtype = DType::bfloat16;
     }},
    {"[grad_scaler] does not apply to training.dtype = 'float32', which does not scale gradients (use float16)",
     [](RunConfig& c) { c.grad_scaler.init_scale = 2; }},
    {"grad_scaler.backoff_factor = 1 is above 0.999 (use 0.999)",
     [](RunConfig& c) {
       c.training.dtype = DType::float16;
       c.grad_scaler.backoff_factor = 1;
     }},
    {"training.attention = 'own' is for GPUs, but training.device = cpu (use auto)",
     [](RunConfig& c) {
       c.training.attention = AttentionKernels::own;
       c.training.device = DeviceChoice::cpu;
     }},
    {"training.attention = 'cudnn' is supported for training.dtype = 'bfloat16', not for 'float32' (use auto)",
     [](RunConfig& c) { c.training.attention = AttentionKernels::cudnn; }},
    {"training.attention = 'cudnn' is not supported with data.reset_attention_mask = true (use auto)",
     [](RunConfig& c) {
       c.training.attention = AttentionKernels::cudnn;
       c.training.dtype = DType::bfloat16;
       c.data.reset_attention_mask = true;
     }},
    {"training.cuda_graphs = true is for GPUs, but training.device = cpu (use false)",
     [](RunConfig& c) {
       c.training.cuda_graphs = true;
       c.training.device = DeviceChoice::cpu;
     }},
    {"metrics.trace = 'step 2' times each operation of a step, which training.cuda_graphs = true replays as one piece "
     "(use cuda_graphs = false)",
     [](RunConfig& c) {
       c.training.cuda_graphs = true;
       c.metrics.trace = "step 2";
     }},
    {"training.logits_dtype = 'bfloat16' is not supported with training.dtype = 'float32', only float32 (use "
     "'float32')",
     [](RunConfig& c) { c.training.logits_dtype = DType::bfloat16; }},
    {"training.logits_dtype = 'float16' is not supported with training.dtype = 'bfloat16', only float32 or bfloat16 "
     "(use 'bfloat16')",
     [](RunConfig& c) {
       c.training.dtype = DType::bfloat16;
       c.training.logits_dtype = DType::float16;
     }},
    {"training.linear_dtype = 'float8' multiplies blocks of 16 values, and training.seq_len = 8 is not a multiple of "
     "16 (use 16)",
     [](RunConfig& c) {
       c.training.linear_dtype = LinearDType::float8;
       c.model.intermediate_size = 128;
       c.training.seq_len = 8;
       c.training.micro_batch_size = 1;
     }},
    {"those of keys and values are sums over ranks (use tensor_parallel_degree = 1)",
     [](RunConfig& c) {
       c.training.linear_dtype = LinearDType::float8;
       c.model.num_key_value_heads = 1;
       c.model.hidden_size = 128;
       c.model.intermediate_size = 128;
       c.model.head_dim = 32;
       c.training.seq_len = 16;
       c.parallelism.tensor_parallel_degree = 2;
     }},
    {"training.reduce_dtype = 'float32' is not supported with training.dtype = 'float64', only float64 (use 'float64')",
     [](RunConfig& c) {
       c.training.dtype = DType::float64;
       c.training.reduce_dtype = DType::float32;
     }},
    {"training.recompute = 'qk_norm' saves no memory: the model has no norms of q and k (use qkv_proj)",
     [](RunConfig& c) { c.training.recompute = {BlockOperation::qk_norm}; }},
    {"training.recompute = 'experts' is a part of a mixture of experts, and the model has no experts (use mlp)",
     [](RunConfig& c) {
       c.training.recompute = {BlockOperation::core_attn, BlockOperation::experts};
     }},
    {"training.recompute = 'shared_expert' saves no memory: the model has no shared expert (use experts)",
     [](RunConfig& c) {
       c.model.family = Family::mixtral;
       c.model.mixture = {.num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 8};
       c.training.recompute = {BlockOperation::shared_expert};
     }},
    {"training.recompute_method = 'block' recomputes nothing with training.recompute = 'none' (use 'uniform')",
     [](RunConfig& c) { c.training.recompute_method = RecomputeMethod::block; }},
    {"training.recompute_num_layers = 2 is not supported yet with training.recompute_method = 'uniform'",
     [](RunConfig& c) { c.training.recompute_num_layers = 2; }},
    {"training.recompute_num_layers = 3 is more than the 2 layers of the largest stage (use 2)",
     [](RunConfig& c) {
       c.training.recompute = whole_block;
       c.training.recompute_method = RecomputeMethod::block;
       c.training.recompute_num_layers = 3;
     }},
    {"training.max_norm = -1 is below 0", [](RunConfig& c) { c.training.max_norm = -1; }},
    {"training.max_norm = inf is not a finite number, such as 1", [](RunConfig& c) { c.training.max_norm = infinity; }},
    {"optimizer.lr = nan is not a finite number, such as 0.0003", [](RunConfig& c) { c.optimizer.lr = not_a_number; }},
    {"optimizer.beta2 = 1 is above 0.999999 (use 0.999999)", [](RunConfig& c) { c.optimizer.beta2 = 1; }},
    {"training.dtype = 'int32' is not one of float32, bfloat16, float16, float64; did you mean ",
     [](RunConfig& c) { c.training.dtype = DType::int32; }},
    {"optimizer.moments_dtype = 'float16' is not one of float32, bfloat16; did you mean bfloat16?",
     [](RunConfig& c) { c.optimizer.moments_dtype = DType::float16; }},
    {"optimizer.moments_dtype = 'bfloat16' is not supported with training.dtype = 'float64', only float64 (use "
     "'float64')",
     [](RunConfig& c) {
       c.training.dtype = DType::float64;
       c.optimizer.moments_dtype = DType::bfloat16;
     }},
    {"optimizer.store_param_remainders = true is not supported with training.dtype = 'float16', only with bfloat16 "
     "(use false)",
     [](RunConfig& c) {
       c.training.dtype = DType::float16;
       c.optimizer.store_param_remainders = true;
     }},
    {"lr_scheduler.warmup_steps = 101 is more than training.steps = 100 (use 100)",
     [](RunConfig& c) { c.lr_scheduler.warmup_steps = 101; }},
    {"lr_scheduler.min_lr_factor = 1.5 is above 1 (use 1)", [](RunConfig& c) { c.lr_scheduler.min_lr_factor = 1.5; }},
    {"output.dir = '' is empty", [](RunConfig& c) { c.output.dir = ""; }},
    {"checkpoint.folder = '../..' is not below output.dir", [](RunConfig& c) { c.checkpoint.folder = "../.."; }},
    {"checkpoint.folder = 'a/../../b' is not below", [](RunConfig& c) { c.checkpoint.folder = "a/../../b"; }},
    {"checkpoint.folder = '/a' is not below output.dir", [](RunConfig& c) { c.checkpoint.folder = "/a"; }},
};
INSTANTIATE_TEST_SUITE_P(Batch, Contradictions, testing::ValuesIn(batch_faults));

const Contradiction layout_faults[] = {
    {"parallelism.tensor_parallel_degree = 8 is more than model.num_attention_heads = 4 (use 4)",
     [](RunConfig& c) { c.parallelism.tensor_parallel_degree = 8; }},
    {"parallelism.pipeline_parallel_degree = 7 makes 7 stages of virtual_stages = 1, more than model.num_hidden_layers "
     "= 4 with embedding and head (use 6)",
     [](RunConfig& c) { c.parallelism.pipeline_parallel_degree = 7; }},
    {"parallelism.pipeline_parallel_degree = 0 is below 1",
     [](RunConfig& c) { c.parallelism.pipeline_parallel_degree = 0; }},
    {"parallelism.pipeline_parallel_layout = [1, 2] adds up to 3",
     [](RunConfig& c) {
       c.parallelism.pipeline_parallel_layout.counts = {1, 2};
     }},
    {"parallelism.zero_level = 4 is above 3 (use 3)", [](RunConfig& c) { c.parallelism.zero_level = 4; }},
    {"parallelism.prefetch_depth = 2 does not apply to parameters that parallelism.zero_level = 1 does not shard (use "
     "1, "
     "or zero_level = 3)",
     [](RunConfig& c) { c.parallelism.prefetch_depth = 2; }},
    {"parallelism.prefetch_depth = 99 is more than the 4 units of a model with model.num_hidden_layers = 2 (use 4)",
     [](RunConfig& c) {
       c.parallelism.zero_level = 3, c.model.num_hidden_layers = 2, c.parallelism.prefetch_depth = 99;
     }},
    {"parallelism.reshard_after_forward = 'step' does not apply to parameters that parallelism.zero_level = 1 does not "
     "shard (use zero_level = 3)",
     [](RunConfig& c) { c.parallelism.reshard_after_forward = ReshardAfterForward::step; }},
    {"parallelism.zero_level = 0 shards nothing over data_parallel_shard_degree = 6 (replicas are "
     "data_parallel_replicate_degree) (use 1)",
     [](RunConfig& c) { c.parallelism.zero_level = 0; }},
    {"parallelism.order = 'tp-dp' does not place the 2 ranks of pp (use 'tp-dp-pp')",
     [](RunConfig& c) {
       c.parallelism.pipeline_parallel_degree = 2;
       c.parallelism.order = parse_axis_order("order", {"tp-dp"});
     }},
    {"parallelism.zero_level = -1 is below 0", [](RunConfig& c) { c.parallelism.zero_level = -1; }},
    {"parallelism.context_parallel_degree = 300 is more than training.seq_len = 256: every rank holds a token (use "
     "256)",
     [](RunConfig& c) { c.parallelism.context_parallel_degree = 300; }},
    {"parallelism.context_parallel_load_balancer = 'none' does not apply to whole sequences: context_parallel_degree = "
     "1 (use headtail)",
     [](RunConfig& c) { c.parallelism.context_parallel_load_balancer = LoadBalancer::none; }},
    {"parallelism.context_parallel_load_balancer = 'packed' distributes documents, but data.reset_attention_mask = "
     "false (use data.reset_attention_mask = true)",
     [](RunConfig& c) {
       c.parallelism.context_parallel_degree = 2;
       c.parallelism.context_parallel_load_balancer = LoadBalancer::packed;
     }},
    {"data.balance_batch = true balances documents of different lengths, but data.reset_attention_mask = false (use "
     "data.reset_attention_mask = true)",
     [](RunConfig& c) { c.data.balance_batch = true; }},
    {"parallelism.context_parallel_method = 'ulysses' does not apply to whole sequences: context_parallel_degree = 1 "
     "(use ring)",
     [](RunConfig& c) { c.parallelism.context_parallel_method = ContextMethod::ulysses; }},
    {"parallelism.context_parallel_ulysses_degree = 2 does not apply to context_parallel_method = 'ring' (use 0)",
     [](RunConfig& c) { c.parallelism.context_parallel_ulysses_degree = 2; }},
    {"parallelism.hierarchical_context_parallel_sizes = [2, 2] does not apply to context_parallel_method = "
     "'all_gather' (use [])",
     [](RunConfig& c) {
       c.parallelism.context_parallel_degree = 4;
       c.parallelism.context_parallel_method = ContextMethod::all_gather;
       c.parallelism.hierarchical_context_parallel_sizes = {2, 2};
     }},
    {"parallelism.context_parallel_ulysses_degree = 0 does not say how many ranks exchange heads in "
     "context_parallel_method = 'ulysses_ring' (use 3)",
     [](RunConfig& c) {
       c.parallelism.context_parallel_degree = 9;
       c.parallelism.context_parallel_method = ContextMethod::ulysses_ring;
     }},
    {"parallelism.context_parallel_ulysses_degree = 5 does not divide context_parallel_degree = 12 (use 4)",
     [](RunConfig& c) {
       c.parallelism.context_parallel_degree = 12;
       c.parallelism.context_parallel_method = ContextMethod::ulysses_ring;
       c.parallelism.context_parallel_ulysses_degree = 5;
     }},
    {"parallelism.hierarchical_context_parallel_sizes = [2, 3] are not two degrees that multiply to "
     "context_parallel_degree = 4 (use [2, 2])",
     [](RunConfig& c) {
       c.parallelism.context_parallel_degree = 4;
       c.parallelism.context_parallel_method = ContextMethod::ulysses_ring;
       c.parallelism.hierarchical_context_parallel_sizes = {2, 3};
     }},
    {"parallelism.context_parallel_ulysses_degree = 4 contradicts hierarchical_context_parallel_sizes = [2, 2] (use 2)",
     [](RunConfig& c) {
       c.parallelism.context_parallel_degree = 4;
       c.parallelism.context_parallel_method = ContextMethod::ulysses_ring;
       c.parallelism.context_parallel_ulysses_degree = 4;
       c.parallelism.hierarchical_context_parallel_sizes = {2, 2};
     }},
    {"parallelism.expert_parallel_degree = 2 divides experts, and the model has none (use 1)",
     [](RunConfig& c) { c.parallelism.expert_parallel_degree = 2; }},
    {"comm.backend = nccl needs GPUs, but training.device = cpu (use auto)",
     [](RunConfig& c) {
       c.comm.backend = CommBackend::nccl;
       c.training.device = DeviceChoice::cpu;
     }},
    {"ranks", [](RunConfig& c) { c.parallelism.data_parallel_shard_degree = 1 << 20; }},
    {"above",
     [](RunConfig& c) { c.parallelism.data_parallel_shard_degree = std::numeric_limits<std::int64_t>::max(); }},
    {"tokens to be a multiple of tensor_parallel_degree = 4 (use training.seq_len = 254)",
     [](RunConfig& c) {
       c.parallelism.sequence_parallel = true;
       c.training.seq_len = 255;
     }},
};
INSTANTIATE_TEST_SUITE_P(Layout, Contradictions, testing::ValuesIn(layout_faults));

}  // namespace
}  // namespace echelon
