#include "parity/locks.h"

#include "blueprint/padding_rows.h"
#include "nn/context_parallel/block_ring.h"
#include "ops/cpu/cpu_ops.h"
#include "spec/groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

namespace echelon::testing {
namespace {

/// Of the rows of this rank those that no token is in, from its list and that of its queries. Where documents decide
/// them, those of the plan, which are as many as there can be.
RowPadding counted_padding(const LayerOptions& options) {
  if (!options.tokens) return {};
  const RankTokens& tokens = *options.tokens;
  if (reads_documents(tokens.split.balancer)) return row_padding(options);
  TokenLists lists;
  lists.assign(tokens.split);
  KeyBlocks blocks;
  blocks.assign(tokens.split, lists, tokens.exchange, tokens.rank);
  const std::int64_t num_tokens = std::ssize(lists.positions(tokens.rank)), num_local = options.num_local_tokens(),
                     first = options.sequence_parallel ? options.tp_rank * num_local : 0;
  std::int64_t of_local = 0;
  for (std::int64_t row = first; row < first + num_local; ++row) of_local += row % tokens.rows < num_tokens ? 0 : 1;
  return {{{{.padding = tokens.rows - num_tokens, .all = tokens.rows},
            {.padding = of_local, .all = num_local},
            {.padding = blocks.num_query_rows() - std::ssize(blocks.queries()), .all = blocks.num_query_rows()}}}};
}

void expect_memory_as_planned(RankRun& run, ProgramKind kind) {
  const MemoryPlan& plan = run.blueprint().memory(kind);
  auto used = run.memory().use(ProgramKind::training);  // persistent buffers are bound under the training plan
  for (const auto& [key, use] : run.memory().use(kind)) used[key] = use;
  const RowPadding counted = counted_padding(run.blueprint().part().options);
  std::map<MemoryCategory, std::int64_t> planned_sum, used_sum;
  for (const PlannedBuffer& buffer : plan.buffers()) {
    RegionUse& use = used[buffer.key];
    SCOPED_TRACE(fmt::format("{}, role {} index {}", name_of(buffer.category), static_cast<int>(buffer.key.role),
                             buffer.key.index));
    EXPECT_EQ(use.num_bytes, buffer.num_bytes);
    if (buffer.category == MemoryCategory::activations)
      EXPECT_EQ(use.rows, buffer.rows);
    else
      use.rows = buffer.rows;  // whole tensors of the plan's sizes
    const auto add = [&](auto& sum, std::int64_t num_bytes, std::int64_t of_rows) {
      sum[buffer.category] += num_bytes - of_rows;
      sum[MemoryCategory::padding_rows] += of_rows;
    };
    add(planned_sum, buffer.num_bytes, plan.padding().bytes(buffer.rows));
    add(used_sum, use.num_bytes, counted.bytes(use.rows));
  }
  for (const MemoryCategory category : memory_categories())
    EXPECT_EQ(used_sum[category], planned_sum[category]) << name_of(category);
}

/// Those that the traced calls have, of which documents leave a part: the same of all heads, and in forward of a pass
/// through all blocks of the rank and another through those that recompute it.
void add_pairs(RankRun& run, ProgramKind kind, std::int64_t times, AttentionPairs& pairs) {
  AttentionPairs traced;
  for (const Action& action : run.blueprint().program(kind))
    for (const OpRecord& op : run.blueprint().trace(kind).of(action).operations()) {
      if (op.kind == OpKind::attention) traced.forward += times * op.flops / (4 * op.k);
      if (op.kind == OpKind::attention_backward) traced.backward += times * op.flops / (10 * op.k);
    }
  const AttentionWork& work = run.step().attention_work(kind);
  EXPECT_LE(work.pairs, work.planned_pairs);
  if (work.planned_pairs == 0) return;  // a rank without blocks
  pairs.forward +=
      traced.forward * (work.pairs + work.recomputed_pairs) / (work.planned_pairs + work.planned_recomputed_pairs);
  pairs.backward += traced.backward * work.pairs / work.planned_pairs;
}

bool is_of_experts(const OpRecord& op) {
  return op.kind == OpKind::grouped_matmul || op.kind == OpKind::grouped_matmul_backward_weight;
}

/// With a capacity, a plan has the rows that experts keep of even loads. Of early tokens they keep more: a rank with a
/// part of a sequence may keep all of its rows.
std::int64_t most_expert_flops(const OpRecord& op, const LayerOptions& options) {
  const std::int64_t num_tokens = options.divides_expert_features ? options.num_tokens() : options.num_local_tokens(),
                     rows = num_tokens * options.model.mixture.num_experts_per_tok;
  const bool has_part = options.tokens || num_tokens < options.num_tokens();
  if (options.expert_capacity == 0 || !has_part) return op.flops;
  return op.kind == OpKind::grouped_matmul ? 2 * rows * op.n * op.k : 2 * op.m * op.n * rows;
}

}  // namespace

AttentionPairs pairs_of(RankRun& run, ProgramRuns runs) {
  AttentionPairs pairs;
  if (runs.training > 0) add_pairs(run, ProgramKind::training, runs.training, pairs);
  if (runs.evaluation > 0) add_pairs(run, ProgramKind::evaluation, runs.evaluation, pairs);
  return pairs;
}

void expect_locks_hold(const RankView& rank, ProgramRuns runs) {
  RankRun& run = rank.run;
  const Mesh& mesh = rank.mesh;
  const auto* const ops = dynamic_cast<const CpuOps*>(&rank.ops);
  SCOPED_TRACE(fmt::format("rank {}", mesh.rank()));
  EXPECT_EQ(run.memory().arena().num_bytes(), run.blueprint().arena_bytes());
  std::map<std::array<std::int64_t, 3>, std::int64_t> products;
  std::map<Group, std::int64_t> sent;
  const LayerOptions& options = run.blueprint().part().options;
  std::int64_t expert_flops = 0, most_flops_of_experts = 0;
  for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation}) {
    const std::int64_t times = kind == ProgramKind::training ? runs.training : runs.evaluation;
    if (times == 0) continue;
    expect_memory_as_planned(run, kind);
    for (const Action& action : run.blueprint().program(kind)) {
      const CallTrace& trace = run.blueprint().trace(kind).of(action);
      for (const OpRecord& op : trace.operations())
        if (op.kind == OpKind::matmul && op.m * op.n * op.k > 0)
          products[{op.m, op.n, op.k}] += times;
        else if (is_of_experts(op)) {
          expert_flops += times * op.flops;
          most_flops_of_experts += times * most_expert_flops(op, options);
        }
      for (const CommRecord& comm : trace.communications())
        if (comm.sent_bytes > 0) sent[comm.group] += times * comm.sent_bytes;
    }
  }
  if (ops != nullptr) {
    EXPECT_EQ(ops->matmul_counts(), products) << "matrix products counted at the BLAS call against the trace";
    const AttentionPairs pairs = pairs_of(run, runs);
    EXPECT_EQ(ops->attention_pairs().forward, pairs.forward) << "pairs counted in attention against the documents";
    EXPECT_EQ(ops->attention_pairs().backward, pairs.backward);
  }
  // Rows that no query sees are planned, but not sent.
  AttentionWork work = run.step().attention_work(ProgramKind::training);
  work += run.step().attention_work(ProgramKind::evaluation);
  EXPECT_LE(work.sent_bytes, work.planned_sent_bytes);
  std::int64_t planned_for_context = 0;
  for (const auto& [group, bytes] : sent)
    if (group.axes == AxisSet{Axis::cp}) planned_for_context += bytes;
  EXPECT_EQ(work.planned_sent_bytes, planned_for_context);
  if (work.planned_sent_bytes > 0)
    sent[ring_group(run.blueprint().part().options.tokens->exchange)] -= work.planned_sent_bytes - work.sent_bytes;
  // Rows of experts are planned for even loads.
  ExpertTraffic experts = run.step().expert_traffic(ProgramKind::training);
  experts += run.step().expert_traffic(ProgramKind::evaluation);
  const int num_expert_ranks = options.num_expert_ranks();
  if (num_expert_ranks > 1) {
    const int inside = options.ep_on_node == 0 && options.etp > 1 ? options.etp : options.ep_on_node;
    sent[inside > 0 ? expert_inner_group(inside) : expert_group(num_expert_ranks)] +=
        experts.sent_bytes - experts.planned_sent_bytes;
    if (inside > 0)
      sent[expert_across_group(num_expert_ranks, inside)] += experts.across_bytes - experts.planned_across_bytes;
    EXPECT_EQ(experts.planned_flops, expert_flops);
    expert_flops = most_flops_of_experts = experts.flops;
  }
  if (ops != nullptr) {
    const bool may_be_padded = num_expert_ranks == 1 && run.blueprint().part().batch_size(BufferRole::places) > 0;
    const std::int64_t most_missing = may_be_padded ? expert_flops : 0;  // padding has no experts
    EXPECT_LE(ops->expert_flops(), most_flops_of_experts);
    EXPECT_GE(ops->expert_flops(), expert_flops - most_missing) << "of experts, counted by their rows";
  }
  std::erase_if(sent, [](const auto& each) { return each.second == 0; });
  std::map<Group, std::int64_t> counted;
  for (const auto& [group, bytes] : mesh.sent_bytes())
    if (bytes > 0) counted[group] = bytes;
  EXPECT_EQ(counted, sent) << "bytes counted in the transport against the trace";
}

}  // namespace echelon::testing
