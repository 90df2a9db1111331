// What backward recomputes: the same bits as what forward would have saved, in regions of exactly the measured sizes,
// and no operation more than it takes.
#include "comm/thread/thread_world.h"
#include "comm/trace/trace_mesh.h"
#include "nn/bench.h"
#include "nn/models.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/delayed/delayed_ops.h"
#include "ops/trace/trace_ops.h"
#include "spec/groups.h"

#include <gtest/gtest.h>

#include <mutex>

namespace echelon::test {
namespace {

using enum BlockOperation;

const std::vector<BlockOperations> all_kinds = {
    {qkv_proj},           {qk_norm},           {core_attn},      {o_proj},        {mlp},
    {qk_norm, core_attn}, {o_proj, core_attn}, {core_attn, mlp}, {qkv_proj, mlp}, attention_internals,
    whole_block};

struct Case {
  ModelSpec model;
  DType dtype = DType::float64;
  BackwardKind kind = BackwardKind::fused;
  int tp = 1;
  bool sequence_parallel = false;
  bool is_delayed = false;
  Recompute recompute = {};
};

// Everything that a rank computes, as the bytes that they are.
using Bits = std::vector<std::string>;

Bits bits_of(const Bench& bench) {
  Bits bits;
  const auto add = [&](const Tensor& tensor) {
    bits.emplace_back(reinterpret_cast<const char*>(tensor.data), static_cast<std::size_t>(tensor.num_bytes()));
  };
  add(bench.dx());
  for (const Param* param : bench.params()) add(param->grad);
  const double loss = bench.loss_sum();
  bits.emplace_back(reinterpret_cast<const char*>(&loss), sizeof loss);
  return bits;
}

LayerOptions options_of(const Case& of, int tp_rank) {
  LayerOptions options = one_rank(of.model, 2, 6);
  options.dtype = of.dtype;
  options.grad_dtype = accumulate_dtype(of.dtype);
  options.tp = of.tp;
  options.tp_rank = tp_rank;
  options.sequence_parallel = of.sequence_parallel;
  options.recompute = of.recompute;
  return options;
}

// Two blocks and the head on each of the tensor-parallel ranks.
std::vector<Bits> bits_of(const Case& of) {
  std::vector<Bits> bits(static_cast<std::size_t>(of.tp));
  run_thread_ranks(tp_shape(of.tp), {}, [&](Mesh& mesh) {
    const LayerOptions options = options_of(of, mesh.coordinate(Axis::tp));
    Stage stage(options, {.num_layers = 2, .has_head = true});
    const Tables tables(options);
    stage.bind_rope_tables(*make_reference_ops(), tables.cos, tables.sin);
    TraceMesh trace_mesh(tp_shape(of.tp), mesh.rank());
    std::unique_ptr<Ops> ops = make_cpu_ops({});
    if (of.is_delayed) ops = std::make_unique<DelayedOps>(std::move(ops), 1);
    Bench bench(passes_of(stage), options, mesh, trace_mesh, std::move(ops));
    EXPECT_EQ(bench.run(of.kind), bench.measured(of.kind)) << "a run takes what its trace says";
    bench.ops().publish();
    bits[static_cast<std::size_t>(mesh.rank())] = bits_of(bench);
  });
  return bits;
}

void expect_same_bits(Case of, const std::vector<BlockOperations>& kinds) {
  of.recompute = {};
  const std::vector<Bits> expected = bits_of(of);
  for (const BlockOperations& operations : kinds) {
    for (const std::int64_t num_blocks : {2, 1}) {
      of.recompute = {.operations = operations, .num_blocks = num_blocks};
      EXPECT_EQ(bits_of(of), expected) << fmt::format(
          "{}, {} blocks, {}, tp {}, sequence_parallel {}, {}", fmt::join(names_of(operations), " "), num_blocks,
          name_of(of.dtype), of.tp, of.sequence_parallel, of.kind == BackwardKind::fused ? "fused" : "split");
    }
  }
}

TEST(Recompute, GivesTheSameBits) {
  for (const ModelSpec& model : {small_llama(), small_qwen(), small_gpt2(), small_mixture(), small_latents()})
    for (const BackwardKind kind : {BackwardKind::fused, BackwardKind::split})
      for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64})
        expect_same_bits({.model = model, .dtype = dtype, .kind = kind}, all_kinds);
}

TEST(Recompute, GivesTheSameBitsUnderTensorParallelism) {
  for (const ModelSpec& model : {small_llama(), small_qwen(), small_gpt2(), small_mixture(), small_latents()})
    for (const BackwardKind kind : {BackwardKind::fused, BackwardKind::split})
      for (const auto& [tp, sequence_parallel] : {std::pair{2, false}, std::pair{2, true}, std::pair{4, true}})
        expect_same_bits({.model = model, .kind = kind, .tp = tp, .sequence_parallel = sequence_parallel}, all_kinds);
}

// Operations that end late, with poison where their results will be.
TEST(Recompute, GivesTheSameBitsWithDelayedOperations) {
  for (const ModelSpec& model : {small_qwen(), small_gpt2(), small_mixture(), small_latents()})
    for (const BackwardKind kind : {BackwardKind::fused, BackwardKind::split})
      expect_same_bits({.model = model, .kind = kind, .tp = 2, .sequence_parallel = true, .is_delayed = true},
                       {attention_internals, {mlp}, whole_block});
}

struct Traced {
  std::map<OpKind, int> ops;
  std::map<CommKind, int> comms;
  std::int64_t matmul_flops = 0;
};

// One block, forward and backward.
Traced trace_of(const Case& of) {
  const LayerOptions options = options_of(of, 0);
  TraceMesh mesh(tp_shape(of.tp), 0);
  TraceOps ops;
  Stage stage(options, {.num_layers = 1});
  (void)measure(passes_of(stage), options, mesh, of.kind, ops);
  Traced traced;
  for (const OpRecord& record : ops.records()) {
    ++traced.ops[record.kind];
    if (record.kind == OpKind::matmul) traced.matmul_flops += 2 * record.m * record.n * record.k;
  }
  for (const CommRecord& record : mesh.records()) ++traced.comms[record.kind];
  return traced;
}

// A block that saves its input alone recomputes everything of forward but the last product. The two norms do not count:
// backward recomputes them in any case.
TEST(Recompute, RecomputesNothingThatNobodyReads) {
  for (const int tp : {1, 2}) {
    Case of = {.model = small_llama(), .tp = tp};
    const ModelSpec& m = of.model;
    const Traced none = trace_of(of);
    of.recompute.operations = whole_block;
    const Traced full = trace_of(of);
    EXPECT_EQ(full.ops.at(OpKind::matmul) - none.ops.at(OpKind::matmul), 6);  // q, k, v, o, gate, up; not down
    EXPECT_EQ(full.ops.at(OpKind::attention) - none.ops.at(OpKind::attention), 1);
    EXPECT_EQ(full.ops.at(OpKind::rope) - none.ops.at(OpKind::rope), 2);
    EXPECT_EQ(full.ops.at(OpKind::rms_norm), none.ops.at(OpKind::rms_norm));
    EXPECT_EQ(full.ops.at(OpKind::swiglu), none.ops.at(OpKind::swiglu));
    const std::int64_t N = 12, C = m.head_dim,
                       width = m.num_attention_heads * 2 * C + m.num_key_value_heads * 2 * C + 2 * m.intermediate_size;
    EXPECT_EQ(full.matmul_flops - none.matmul_flops, 2 * N * m.hidden_size * width / tp);
  }
}

// Without sequence parallelism the attention branch is summed once more for h. With it the tokens of both branches are
// gathered where forward's are recomputed, and read once more by the weights' gradients, which would have gathered
// them: nothing but the sum for h comes on top.
TEST(Recompute, CommunicatesForHAlone) {
  for (const bool sequence_parallel : {false, true}) {
    Case of = {.model = small_llama(), .tp = 2, .sequence_parallel = sequence_parallel};
    const Traced none = trace_of(of);
    for (const BlockOperations& operations : all_kinds) {
      of.recompute.operations = operations;
      Traced expected = none;
      if (operations.contain(o_proj))
        ++expected.comms[sequence_parallel ? CommKind::reduce_scatter : CommKind::all_reduce];
      EXPECT_EQ(trace_of(of).comms, expected.comms) << fmt::format("{}", fmt::join(names_of(operations), " "));
    }
  }
}

// With a backward pass in halves the first gathers to recompute, and the second, maybe much later, for the weights.
TEST(Recompute, HalvesGatherOnceMore) {
  Case of = {.model = small_llama(), .kind = BackwardKind::split, .tp = 2, .sequence_parallel = true};
  const Traced none = trace_of(of);
  of.recompute.operations = whole_block;
  const Traced full = trace_of(of);
  EXPECT_EQ(full.comms.at(CommKind::all_gather) - none.comms.at(CommKind::all_gather), 2);
  EXPECT_EQ(full.comms.at(CommKind::reduce_scatter) - none.comms.at(CommKind::reduce_scatter), 1);
}

}  // namespace
}  // namespace echelon::test
