// Checks of a config for contradictions. Sizes that depend on the data are checked when it is read, the split of heads
// in nn.
#include "base/error.h"
#include "spec/config/config_ranges.h"
#include "spec/config/config_value.h"
#include "spec/config/pipeline.h"
#include "spec/config/run_config.h"
#include "spec/config/run_formats.h"
#include "spec/stage_layout.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <numeric>

namespace echelon {
namespace {

constexpr std::int64_t max_microbatches = 1 << 16;  // the plan lists every action of a step

void check_dtypes(const TrainingConfig& t) {
  (void)parse_training_dtype("training.dtype", name_of(t.dtype));
  require(t.float32_matmul_precision == MatmulPrecision::highest || t.dtype == DType::float32,
          "training.float32_matmul_precision = '{}' does not apply to training.dtype = '{}' (use highest)",
          name_of(t.float32_matmul_precision), name_of(t.dtype));
  require_format("training.logits_dtype", t.logits_dtype, t.dtype);
  require_format("training.grad_dtype", t.grad_dtype, t.dtype);
  require_format("training.reduce_dtype", t.reduce_dtype, t.dtype);
}

void check_float8(const RunConfig& config) {
  const TrainingConfig& t = config.training;
  if (t.linear_dtype != LinearDType::float8) return;
  const ParallelConfig& p = config.parallelism;
  const ModelSpec& m = config.model;
  require(!m.has_latents(),
          "training.linear_dtype = 'float8' is not supported for model.model_type = '{}' (omit linear_dtype)",
          name_of(m.family));
  constexpr std::int64_t unit = 16;  // of tensor cores in 8 bits
  const auto require_units = [&](std::string_view key, std::int64_t value, std::int64_t of) {
    require(
        value % of == 0,
        "training.linear_dtype = 'float8' multiplies blocks of {} values, and {} = {} is not a multiple of {} (use {})",
        unit, key, value, of, (value + of - 1) / of * of);
  };
  require_units("model.hidden_size", m.hidden_size, unit);
  require_units("model.head_dim", m.head_dim, unit);
  require_units("model.intermediate_size", m.intermediate_size, unit * p.tensor_parallel_degree);
  if (p.context_parallel_degree == 1)  // else the tokens of a rank are padded
    require_units("training.seq_len", t.seq_len, unit / std::gcd(unit, t.micro_batch_size));
  require_units("training.mlp_chunk_tokens", t.mlp_chunk_tokens, unit);
  require(
      p.tensor_parallel_degree <= m.num_key_value_heads,
      "training.linear_dtype = 'float8' rounds gradients, and with parallelism.tensor_parallel_degree = {} above "
      "model.num_key_value_heads = {} those of keys and values are sums over ranks (use tensor_parallel_degree = {})",
      p.tensor_parallel_degree, m.num_key_value_heads, m.num_key_value_heads);
}

void check_lora(const RunConfig& config) {
  validate(config.lora, config.model);
  require(!config.lora.exists() || config.training.linear_dtype != LinearDType::float8,
          "training.linear_dtype = 'float8' is not supported with lora.rank = {} (omit linear_dtype)",
          config.lora.rank);
}

void check_recompute(const RunConfig& config) {
  const TrainingConfig& t = config.training;
  const bool is_block = t.recompute_method == RecomputeMethod::block;
  const BlockOperations of_q_and_k = {BlockOperation::qk_norm};
  require(t.recompute != of_q_and_k || config.model.qk_norm,
          "training.recompute = 'qk_norm' saves no memory: the model has no norms of q and k (use qkv_proj)");
  for (const BlockOperation part : parts_of_mixture) {
    if (!t.recompute.contain(part) || t.recompute.contain(BlockOperation::mlp)) continue;
    require(config.model.has_experts(),
            "training.recompute = '{}' is a part of a mixture of experts, and the model has no experts (use mlp)",
            name_of(part));
    require(part != BlockOperation::shared_expert || config.model.mixture.shared_expert_intermediate_size > 0,
            "training.recompute = 'shared_expert' saves no memory: the model has no shared expert (use experts)");
  }
  require(!t.recompute.empty() || !is_block,
          "training.recompute_method = 'block' recomputes nothing with training.recompute = 'none' (use 'uniform')");
  require(is_block || t.recompute_num_layers == 1,
          "training.recompute_num_layers = {} is not supported yet with training.recompute_method = 'uniform' (one "
          "input for a group of layers) (use 1)",
          t.recompute_num_layers);
  const ParallelConfig& p = config.parallelism;
  std::int64_t most = 0;
  for (const StageLayers& stage :
       stage_layout(config.model.num_hidden_layers, num_pipeline_stages(config), p.pipeline_parallel_layout))
    most = std::max(most, stage.num_layers);
  require(!is_block || t.recompute_num_layers <= most,
          "training.recompute_num_layers = {} is more than the {} layers of the largest stage (use {})",
          t.recompute_num_layers, most, most);
}

/// A search for a layout chooses what is recomputed.
void check_mlp_chunks(const TrainingConfig& t) {
  if (t.mlp_chunk_tokens == 0) return;
  BlockOperations with_mlp = t.recompute;
  with_mlp.add(BlockOperation::mlp);
  require(t.recompute.contain(BlockOperation::mlp),
          "training.mlp_chunk_tokens = {} recomputes the feed-forward branch, but training.recompute = '{}' saves it "
          "(use recompute = {})",
          t.mlp_chunk_tokens, fmt::join(names_of(t.recompute), ","), fmt::join(names_of(with_mlp), ","));
  require(t.recompute_method == RecomputeMethod::uniform,
          "training.mlp_chunk_tokens = {} recomputes in all blocks, but training.recompute_method = 'block' in some "
          "(use recompute_method = uniform)",
          t.mlp_chunk_tokens);
}

void check_batch(const RunConfig& config) {
  const TrainingConfig& t = config.training;
  require(
      t.seq_len <= config.model.max_position_embeddings,
      "training.seq_len = {} is more than model.max_position_embeddings = {}; did you mean {}? For longer sequences "
      "raise the model's: --model.max_position_embeddings={}",
      t.seq_len, config.model.max_position_embeddings, config.model.max_position_embeddings, t.seq_len);
  const std::int64_t per_microbatch = config.data_parallel_degree() * t.micro_batch_size;
  const std::int64_t below = t.global_batch_size / per_microbatch * per_microbatch;
  const bool above_is_nearer = below == 0 || t.global_batch_size - below > per_microbatch / 2;
  require(t.global_batch_size % per_microbatch == 0,
          "training.global_batch_size = {} is not a multiple of {} = {} data-parallel ranks x "
          "training.micro_batch_size {} (use {})",
          t.global_batch_size, per_microbatch, config.data_parallel_degree(), t.micro_batch_size,
          above_is_nearer ? below + per_microbatch : below);
}

void check_num_microbatches(const RunConfig& config) {
  const std::int64_t per_microbatch = config.data_parallel_degree() * config.training.micro_batch_size;
  require(config.num_microbatches() <= max_microbatches,
          "training.global_batch_size = {} makes {} microbatches per rank and step, more than {} (use {})",
          config.training.global_batch_size, config.num_microbatches(), max_microbatches,
          max_microbatches * per_microbatch);
}

void check_sequence_parallel(const RunConfig& config) {
  const std::int64_t degree = config.parallelism.tensor_parallel_degree, micro_batch = config.training.micro_batch_size,
                     seq_len = config.training.seq_len;
  const std::int64_t unit = degree / std::gcd(degree, micro_batch), below = seq_len / unit * unit;
  const bool above_is_nearer =
      below == 0 || (below + unit - seq_len < seq_len - below && below + unit <= config.model.max_position_embeddings);
  require(seq_len % unit == 0,
          "parallelism.sequence_parallel = true needs training.micro_batch_size {} x training.seq_len {} = {} tokens "
          "to be a multiple of tensor_parallel_degree = {} (use training.seq_len = {})",
          micro_batch, seq_len, micro_batch * seq_len, degree, above_is_nearer ? below + unit : below);
}

void check_parallelism(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  require(p.zero_level >= 1 || p.data_parallel_shard_degree == 1,
          "parallelism.zero_level = 0 shards nothing over data_parallel_shard_degree = {} (replicas are "
          "data_parallel_replicate_degree) (use 1)",
          p.data_parallel_shard_degree);
  require(p.zero_level == 3 || p.reshard_after_forward == ReshardAfterForward::microbatch,
          "parallelism.reshard_after_forward = '{}' does not apply to parameters that parallelism.zero_level = {} does "
          "not shard (use zero_level = 3)",
          name_of(p.reshard_after_forward), p.zero_level);
  require(p.zero_level == 3 || p.prefetch_depth == 1,
          "parallelism.prefetch_depth = {} does not apply to parameters that parallelism.zero_level = {} does not "
          "shard (use 1, or zero_level = 3)",
          p.prefetch_depth, p.zero_level);
  check_prefetch_depth(config);
  check_context_parallel(config);
  require(!config.data.balance_batch || config.data.reset_attention_mask,
          "data.balance_batch = true balances documents of different lengths, but data.reset_attention_mask = false "
          "(use data.reset_attention_mask = true)");
  check_expert_parallel(config);
  require(p.tensor_parallel_degree <= config.model.num_attention_heads,
          "parallelism.tensor_parallel_degree = {} is more than model.num_attention_heads = {} (use {})",
          p.tensor_parallel_degree, config.model.num_attention_heads, config.model.num_attention_heads);
  // Under context parallelism the tokens of a rank are padded.
  if (p.sequence_parallel && p.context_parallel_degree == 1) check_sequence_parallel(config);
}

/// A stage has at least one layer; embedding and head count as layers.
void check_num_stages(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  if (!p.pipeline_parallel_schedule_csv.empty()) return;  // the file defines the stages
  const std::int64_t most = config.model.num_hidden_layers + 2, num_ranks = p.pipeline_parallel_degree,
                     per_rank = num_pipeline_stages(config) / num_ranks;
  const std::int64_t least_per_rank = entry_of(p.pipeline_parallel_schedule).least_virtual,
                     most_per_rank = most / num_ranks;
  require(per_rank <= most_per_rank || most_per_rank < least_per_rank,
          "parallelism.virtual_stages = {} makes {} stages on {} ranks, more than model.num_hidden_layers = {} with "
          "embedding and head (use {})",
          per_rank, per_rank * num_ranks, num_ranks, most - 2, most_per_rank);
  require(per_rank <= most_per_rank,
          "parallelism.pipeline_parallel_degree = {} makes {} stages of virtual_stages = {}, more than "
          "model.num_hidden_layers = {} with embedding and head (use {})",
          num_ranks, per_rank * num_ranks, per_rank, most - 2, most / least_per_rank);
}

// Requires a valid number of microbatches.
void check_pipeline(const RunConfig& config) {
  check_num_stages(config);
  (void)stage_layout(config.model.num_hidden_layers, num_pipeline_stages(config),
                     config.parallelism.pipeline_parallel_layout);
}

void check_attention(const RunConfig& config) {
  const TrainingConfig& t = config.training;
  require(t.attention == AttentionKernels::automatic || t.device != DeviceChoice::cpu,
          "training.attention = '{}' is for GPUs, but training.device = cpu (use auto)", name_of(t.attention));
  if (t.attention != AttentionKernels::cudnn) return;
  require(t.dtype == DType::bfloat16,
          "training.attention = 'cudnn' is supported for training.dtype = 'bfloat16', not for '{}' (use auto)",
          name_of(t.dtype));
  require(!config.data.reset_attention_mask,
          "training.attention = 'cudnn' is not supported with data.reset_attention_mask = true (use auto)");
  require(config.model.sliding_window == 0,
          "training.attention = 'cudnn' is not supported with model.sliding_window = {} (use auto)",
          config.model.sliding_window);
  require(config.model.attn_logit_softcapping == 0,
          "training.attention = 'cudnn' is not supported with model.attn_logit_softcapping = {} (use auto)",
          config.model.attn_logit_softcapping);
}

void check_ranks(const RunConfig& config) {
  const bool runs_on_cpus = config.training.device == DeviceChoice::cpu;
  require(config.comm.backend != CommBackend::nccl || !runs_on_cpus,
          "comm.backend = nccl needs GPUs, but training.device = cpu (use auto)");
  require(!config.training.cuda_graphs || !runs_on_cpus,
          "training.cuda_graphs = true is for GPUs, but training.device = cpu (use false)");
  check_attention(config);
  // its degrees, and that the product of the degrees is a valid number of ranks
  const MeshShape mesh = config.mesh_shape();
  const AxisOrder all;
  const AxisOrder& order = config.parallelism.order;
  for (const Axis axis : all.axes())
    if (mesh.degree(axis) > 1 && !order.names(axis))
      throw Error(fmt::format("parallelism.order = '{}' does not place the {} ranks of {} (use '{}-{}')",
                              name_of(order), mesh.degree(axis), name_of(axis), name_of(order), name_of(axis)));
}

void check_optimizer(const RunConfig& config) {
  const DType dtype = config.training.dtype;
  require_format("optimizer.moments_dtype", config.optimizer.moments_dtype, dtype);
  require(!config.optimizer.store_param_remainders || dtype == DType::bfloat16,
          "optimizer.store_param_remainders = true is not supported with training.dtype = '{}', only with bfloat16 "
          "(use false)",
          name_of(dtype));
  require(config.lr_scheduler.warmup_steps <= config.training.steps,
          "lr_scheduler.warmup_steps = {} is more than training.steps = {} (use {})", config.lr_scheduler.warmup_steps,
          config.training.steps, config.training.steps);
}

void check_grad_scaler(const RunConfig& config) {
  const GradScalerConfig& scaler = config.grad_scaler;
  require(config.training.dtype == DType::float16 || scaler == GradScalerConfig(),
          "[grad_scaler] does not apply to training.dtype = '{}', which does not scale gradients (use float16)",
          name_of(config.training.dtype));
}

void check_output(const RunConfig& config) {
  const StepRange traced = parse_traced_steps(config.metrics.trace);
  require(traced.last <= config.training.steps, "metrics.trace = '{}' exceeds training.steps = {} (use 'step {}')",
          config.metrics.trace, config.training.steps, config.training.steps);
  require(config.metrics.trace.empty() || !config.training.cuda_graphs,
          "metrics.trace = '{}' times each operation of a step, which training.cuda_graphs = true replays as one piece "
          "(use cuda_graphs = false)",
          config.metrics.trace);
  require(!config.output.dir.empty(), "output.dir = '' is empty (use out)");
  require(!config.checkpoint.enable || !config.checkpoint.folder.empty(),
          "checkpoint.folder = '' is empty (use checkpoint)");
  const std::filesystem::path folder = std::filesystem::path(config.checkpoint.folder).lexically_normal();
  require(!config.checkpoint.enable || (folder.is_relative() && *folder.begin() != ".."),
          "checkpoint.folder = '{}' is not below output.dir (use a relative path, and output.dir for another place)",
          config.checkpoint.folder);
}

constexpr std::int64_t max_traced_steps = 100;

/// The whole text as a positive number, or 0.
std::int64_t step_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 1 ? number : 0;
}

}  // namespace

StepRange parse_traced_steps(const std::string& text) {
  if (text.empty()) return {};
  std::string_view numbers = text;
  for (const std::string_view word : {"steps ", "step "})
    if (numbers.starts_with(word)) numbers.remove_prefix(word.size());
  const std::size_t dash = numbers.find('-');
  const std::int64_t first = step_number(numbers.substr(0, dash)),
                     last = dash == std::string_view::npos ? first : step_number(numbers.substr(dash + 1));
  require(first > 0 && last > 0, "metrics.trace = '{}' does not name steps (use 'steps 3-5')", text);
  require(first <= last, "metrics.trace = '{}' ends before it starts (use 'steps {}-{}')", text, last, first);
  require(last - first < max_traced_steps,
          "metrics.trace = '{}' names {} steps, more than the {} that fit in memory (use 'steps {}-{}')", text,
          last - first + 1, max_traced_steps, first, first + max_traced_steps - 1);
  return {first, last};
}

void check_prefetch_depth(const RunConfig& config) {
  const std::int64_t depth = config.parallelism.prefetch_depth;
  const std::int64_t num_units = config.model.num_hidden_layers + 2;  // with the embedding and the head
  require(depth <= num_units,
          "parallelism.prefetch_depth = {} is more than the {} units of a model with model.num_hidden_layers = {} "
          "(use {})",
          depth, num_units, config.model.num_hidden_layers, num_units);
}

void check_ranges(const RunConfig& config) {
  RunConfig copy = config;  // the table's fields need a mutable config
  for (const ConfigKey& key : config_keys()) {
    if (key.name.starts_with("model.")) continue;  // validate(ModelSpec) checks the model
    const auto* whole = std::get_if<FieldOf<std::int64_t>>(&key.field);
    const auto* real = std::get_if<FieldOf<double>>(&key.field);
    if (!whole && !real) continue;
    const double number = whole ? static_cast<double>((*whole)(copy)) : (*real)(copy);
    if (std::isfinite(number) && number >= key.range.least && number <= key.range.most) continue;
    const std::string value = to_toml(value_of(key, copy));
    RunConfig defaults;
    require(std::isfinite(number), "{} = {} is not a finite number, such as {}", key.name, value,
            to_toml(value_of(key, defaults)));
    require(number >= key.range.least, "{} = {} is below {} (use {})", key.name, value, key.range.least,
            key.range.least);
    require(number <= key.range.most, "{} = {} is above {} (use {})", key.name, value, key.range.most, key.range.most);
  }
}

void validate(const RunConfig& config) {
  validate_without_layout(config);
  check_mlp_chunks(config.training);
  check_num_microbatches(config);
}

void validate_without_layout(const RunConfig& config) {
  validate(config.model);
  check_ranges(config);
  check_dtypes(config.training);
  check_ranks(config);
  check_parallelism(config);
  check_batch(config);
  check_float8(config);
  check_experts(config);
  check_lora(config);
  check_pipeline(config);
  check_recompute(config);
  check_optimizer(config);
  check_grad_scaler(config);
  check_output(config);
}

}  // namespace echelon
