#include "predict/published/software_memory.h"

#include "blueprint/padding_rows.h"
#include "nn/head_split.h"
#include "nn/sharding.h"

#include <algorithm>
#include <map>

namespace echelon {
namespace {

constexpr std::int64_t half_bytes = 2;  // of activations

/// Of a sequence, on the rank with most padding.
RowPadding::Rows padded_rows(const RunConfig& config) {
  const std::int64_t cp = config.parallelism.context_parallel_degree, T = config.training.seq_len,
                     all = (T + cp - 1) / cp;
  return {.padding = all - T / cp, .all = all};
}

std::int64_t tokens_of_rank(const RunConfig& config) {
  return config.training.micro_batch_size * padded_rows(config).all;
}

/// Sizes of the first rank's part of a block.
struct BlockSizes {
  std::int64_t tokens, local_tokens, width, heads, q, kv, features, scores;
};

BlockSizes sizes_of(const RunConfig& config) {
  const ModelSpec& model = config.model;
  const int tp = static_cast<int>(config.parallelism.tensor_parallel_degree);
  const std::int64_t tokens = tokens_of_rank(config);
  const HeadSplit split = head_split(model, tp, 0);
  BlockSizes sizes{};
  sizes.tokens = tokens;
  sizes.local_tokens = config.parallelism.sequence_parallel ? tokens / tp : tokens;
  sizes.width = model.hidden_size;
  sizes.heads = split.num_heads;
  sizes.q = split.num_heads * model.head_dim;
  sizes.kv = split.num_kv_heads * model.head_dim;
  sizes.features = even_slice(model.intermediate_size, tp, 0).count;
  sizes.scores = split.num_heads * tokens * config.training.seq_len;
  return sizes;
}

std::int64_t attention_bytes(const SoftwareProfile& profile, const BlockSizes& b) {
  if (profile.attention == AttentionKernel::fused) return 4 * b.heads * b.tokens;
  return (profile.has_dropout ? 5 : 2) * b.scores;  // softmax, dropout's mask and output
}

/// In place of the logits: themselves, in 32 bits, their softmax and their gradient. PyTorch's loss over sharded logits
/// is a chain of operations, which hold more copies in 32 bits. At most these are the logarithms of the softmax, their
/// exponentials, a sum of both that becomes the gradient, and two while it is computed. Compiled, it leaves the logits
/// and their gradient.
constexpr std::int64_t bytes_of_logit = 12, bytes_of_sharded_logit = 20, bytes_of_compiled_logit = 4;

std::int64_t num_logits(const RunConfig& config) {
  return tokens_of_rank(config) * config.model.vocab_size / config.parallelism.tensor_parallel_degree;
}

std::int64_t logit_bytes(const SoftwareProfile& profile, const RunConfig& config) {
  if (config.parallelism.tensor_parallel_degree > 1)
    return (profile.shards_loss_eagerly ? bytes_of_sharded_logit : bytes_of_logit) * num_logits(config);
  return (profile.compiles_loss ? bytes_of_compiled_logit : bytes_of_logit) * num_logits(config);
}

/// What PyTorch's pipelines keep of a step: every microbatch's output (torch.distributed.pipelining, output_chunks).
std::int64_t output_bytes(const RunConfig& config, bool is_last) {
  const BlockSizes b = sizes_of(config);
  return half_bytes * config.num_microbatches() * (is_last ? num_logits(config) : b.local_tokens * b.width);
}

/// The inputs of a block's matmuls and the gradients of their outputs: what stays where weight gradients are computed
/// later (Qi et al. 2023, arXiv:2401.10241, table 1: 32 s b h).
std::int64_t kept_for_weights(const RunConfig& config) {
  const BlockSizes b = sizes_of(config);
  return 32 * b.tokens * b.width / config.parallelism.tensor_parallel_degree;
}

/// Of rows that are padding: those of activations, and of what is as in the plan.
std::int64_t padding_bytes(const MemoryPlan& plan, std::int64_t of_activations) {
  std::int64_t padding = of_activations;
  for (const MemoryCategory category : {MemoryCategory::constants, MemoryCategory::batch, MemoryCategory::boundaries})
    padding += plan.peak_padding_bytes(category);
  return padding;
}

/// The most that a program holds of what its microbatches keep. Passes by units count at the first unit, which is the
/// last to go back.
std::int64_t most_kept(const Program& program, std::map<int, std::int64_t>& kept,
                       std::map<int, std::int64_t>& for_weights) {
  std::int64_t held = 0, most = 0;
  for (const Action& action : program) {
    if (action.unit > 0) continue;
    if (action.kind == ActionKind::forward) held += kept[action.stage];
    if (action.kind == ActionKind::backward) held -= kept[action.stage];
    if (action.kind == ActionKind::backward_input) held -= kept[action.stage] - for_weights[action.stage];
    if (action.kind == ActionKind::backward_weight) held -= for_weights[action.stage];
    most = std::max(most, held);
  }
  return most;
}

}  // namespace

std::int64_t kept_block_bytes(const SoftwareProfile& profile, const RunConfig& config,
                              const BlockOperations& recomputed) {
  const BlockSizes b = sizes_of(config);
  const std::int64_t input = half_bytes * b.local_tokens * b.width, inner = is_gated(config.model.mlp) ? 3 : 2;
  if (recomputed == whole_block) return input;
  const std::int64_t products = b.tokens * (b.q + 2 * b.kv + (inner - 1) * b.features) + 2 * b.local_tokens * b.width;
  // Every other matmul and attention's output.
  if (recomputed.contain(BlockOperation::mlp) && !recomputed.contain(BlockOperation::core_attn))
    return input + half_bytes * b.tokens * b.q + attention_bytes(profile, b) + half_bytes * products / 2;
  // Both norms' inputs and outputs, masks of both branches.
  std::int64_t bytes = 4 * input + (profile.has_dropout ? input : 0);
  bytes += half_bytes * b.tokens * (2 * b.q + 2 * b.kv + inner * b.features);
  return recomputed.contain(BlockOperation::core_attn) ? bytes : bytes + attention_bytes(profile, b);
}

std::vector<PredictedMemory> software_memory(const SoftwareProfile& profile, const Blueprint& blueprint,
                                             const std::vector<PredictedMemory>& planned) {
  const RunConfig& config = blueprint.config();
  const std::int64_t whole = kept_block_bytes(profile, config, {});
  std::vector<PredictedMemory> memory = planned;
  const std::vector<RankBlueprint> ranks = blueprint.pipeline_ranks();
  const Recompute recompute = ranks.front().part().options.recompute;
  for (std::size_t pipeline_rank = 0; pipeline_rank < memory.size(); ++pipeline_rank) {
    const RankBlueprint& rank = ranks[pipeline_rank];
    const ModelPart& part = rank.part();
    PredictedMemory& each = memory[pipeline_rank];
    std::map<int, std::int64_t> kept;  // of a microbatch, by stage
    for (const StagePart& stage : part.stages)
      for (std::int64_t block = 0; block < stage.layers.num_layers; ++block)
        kept[stage.index] += kept_block_bytes(profile, config, recompute.of_block(block));
    std::map<int, std::int64_t> for_weights;
    for (const StagePart& stage : part.stages)
      for_weights[stage.index] = std::min(kept[stage.index], kept_for_weights(config) * stage.layers.num_layers);
    std::int64_t& activations = each.category_bytes[MemoryCategory::activations];
    const RowPadding::Rows rows = padded_rows(config);
    const std::int64_t most = most_kept(rank.program(ProgramKind::training), kept, for_weights),
                       of_padding = most / rows.all * rows.padding;
    activations = most - of_padding;
    each.category_bytes[MemoryCategory::padding_rows] =
        padding_bytes(most_padded_memory(rank, ProgramKind::training), of_padding);
    std::int64_t& workspace = each.category_bytes[MemoryCategory::workspace];
    workspace = recompute.operations.empty() ? 0 : whole;  // of a block that is recomputed
    if (part.has_head()) workspace = std::max(workspace, logit_bytes(profile, config));
    // FSDP keeps 32-bit parameters alone, where Echelon also has a 16-bit copy.
    if (config.parallelism.zero_level == 3) each.category_bytes[MemoryCategory::parameters] = 0;
    std::int64_t& gradients = each.category_bytes[MemoryCategory::gradients];
    if (profile.keeps_wide_gradients) {
      if (!config.training.grad_dtype) gradients += each.category_bytes[MemoryCategory::parameters];
      gradients += each.category_bytes[MemoryCategory::master_weights];
    }
    if (config.parallelism.pipeline_parallel_degree > 1 && config.num_microbatches() > 1) {
      if (profile.adds_whole_gradients && config.parallelism.zero_level == 3)
        gradients += config.parallelism.data_parallel_shard_degree * config.parallelism.context_parallel_degree *
                     each.category_bytes[MemoryCategory::master_weights];
      if (profile.keeps_outputs)
        each.category_bytes[MemoryCategory::boundaries] += output_bytes(config, part.has_head());
    }
    // What the profile counts itself is not reserved once more.
    const std::int64_t counted = std::min(each.reserved_bytes, profile.framework_bytes);
    each.device_bytes += counted;
    each.reserved_bytes -= counted;
    std::int64_t sum = 0;
    for (const auto& [category, bytes] : each.category_bytes) sum += bytes;
    const std::int64_t transient = most + workspace;
    each.arena_bytes = sum + static_cast<std::int64_t>((profile.fragmentation - 1) * static_cast<double>(transient)) +
                       profile.framework_bytes;
  }
  return memory;
}

Simulation simulate_software(const Blueprint& blueprint, const MachineSpec& machine, const SimulationOptions& options) {
  Simulation result = simulate(blueprint, calibrated(options.profile, machine), options);
  if (!options.profile.is_echelon) result.memory = software_memory(options.profile, blueprint, result.memory);
  return result;
}

}  // namespace echelon
