#include "executor/model_part.h"

#include "base/error.h"
#include "nn/head_split.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace echelon {
namespace {

// An H100 computes about 700e12 flops and moves 3.35e12 bytes a second. So the traffic of a float32 weight gradient is
// hidden by a matmul of 800 or more tokens. With 16-bit logits that is 5,300 tokens of GPT-2's vocabulary and 2,100 of
// Llama 3's (docs/internals/gpu.md).
constexpr std::int64_t max_bytes_on_gpu = std::int64_t{512} << 20;

bool is_on_gpu(const TrainingConfig& training) { return training.device == DeviceChoice::cuda; }

HeadChunk head_chunk(const TrainingConfig& training) {
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  const std::int64_t multiple = is_on_gpu(training) ? 256 : 1;  // whole tiles of matmuls, of one kind
  if (training.head_chunk_tokens > 0)
    return {.max_tokens = training.head_chunk_tokens, .max_bytes = any, .multiple = multiple};
  return is_on_gpu(training) ? HeadChunk{.max_tokens = any, .max_bytes = max_bytes_on_gpu, .multiple = multiple}
                             : HeadChunk{};
}

/// Whole tiles of matmuls on GPUs, and blocks of float8.
MlpChunk mlp_chunk(const TrainingConfig& training) {
  const bool has_units = is_on_gpu(training) || training.linear_dtype == LinearDType::float8;
  constexpr std::int64_t tile = 256, unit = 16;
  const std::int64_t most = training.mlp_chunk_tokens;
  return {.max_tokens = most, .multiple = !has_units ? 1 : is_on_gpu(training) && most >= tile ? tile : unit};
}

/// On CPUs float32 sums stay in the caches and cost nothing.
DType logits_dtype(const TrainingConfig& training, DType dtype) {
  return training.logits_dtype.value_or(is_on_gpu(training) ? dtype : accumulate_dtype(dtype));
}

/// Rows of 16-bit values with this multiple are aligned for tensor cores; GPT-2's 50,257 is odd.
std::int64_t vocabulary_multiple(const TrainingConfig& training) {
  constexpr std::int64_t on_gpu = 128;  // Megatron-LM's --make-vocab-size-divisible-by
  if (training.make_vocab_size_divisible_by > 0) return training.make_vocab_size_divisible_by;
  return is_on_gpu(training) ? on_gpu : 1;
}

// In deterministic mode too, where cuDNN's gradients need it from version 9.25 on; a plan knows no version. Where
// documents are masked, cuDNN computes the sequences without a boundary, and none in a graph (RankBatch::write_shape).
bool may_use_cudnn_backward(const RunConfig& config) {
  const TrainingConfig& training = config.training;
  return is_on_gpu(training) && training.attention != AttentionKernels::own && training.dtype == DType::bfloat16 &&
         !(config.data.reset_attention_mask && training.cuda_graphs);
}

/// Whether sequences differ in the positions of a rank's tokens, or the rows of the embedding are not in order.
bool has_positions(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const bool lists_differ = p.context_parallel_degree > 1 && reads_documents(p.context_parallel_load_balancer),
             reads_rows = p.context_parallel_degree > 1 && config.model.position == PositionKind::learned;
  return config.data.reset_position_ids || lists_differ || reads_rows;
}

RouterLosses router_losses(const RunConfig& config) {
  const MoeConfig& moe = config.moe;
  const auto T = static_cast<double>(config.training.seq_len),
             sequences = static_cast<double>(config.training.global_batch_size);
  return {.sequence = moe.seq_aux_loss_coeff,
          .global = moe.global_aux_loss_coeff,
          .z = moe.z_loss_coeff,
          .tokens_per_sequence = T,
          .num_tokens = T * sequences,
          .expected_targets = T * sequences};
}

/// Under sequence parallelism a rank's tokens are divided again.
std::shared_ptr<const RankTokens> tokens_of(const RunConfig& config, const MeshShape& mesh, int rank) {
  if (mesh.degree(Axis::cp) == 1) return nullptr;
  return std::make_shared<const RankTokens>(rank_tokens(token_split(config), key_exchange(config.parallelism),
                                                        mesh.coordinate(rank, Axis::cp), windows_with_ranges(config)));
}

/// Of blocks that have a window where others have none.
std::int64_t other_window(const RunConfig& config) {
  const std::vector<std::int64_t> windows = config.model.windows();
  const std::int64_t window = windows.size() > 1 ? std::ranges::max(windows) : 0;
  return window < config.training.seq_len ? window : 0;
}

}  // namespace

std::int64_t window_of_all(const RunConfig& config) {
  const std::vector<std::int64_t> windows = config.model.windows();
  return windows.size() == 1 && windows[0] < config.training.seq_len ? windows[0] : 0;
}

std::vector<std::int64_t> windows_with_ranges(const RunConfig& config) {
  const KeyExchange exchange = key_exchange(config.parallelism);
  const bool has_part_of_keys = exchange.head_ranks < config.parallelism.context_parallel_degree;
  std::vector<std::int64_t> windows;
  for (const std::int64_t window : config.model.windows()) {
    const std::int64_t limit = window >= config.training.seq_len ? 0 : window;
    const bool has_ranges = limit > 0 || config.data.reset_attention_mask || has_part_of_keys;
    if (has_ranges && std::ranges::find(windows, limit) == windows.end()) windows.push_back(limit);
  }
  return windows;
}

bool has_windows(const RunConfig& config) {
  return std::ranges::any_of(windows_with_ranges(config), [](std::int64_t window) { return window > 0; });
}

bool skips_unseen_keys(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const bool sees_a_part = config.data.reset_attention_mask || has_windows(config);
  return key_exchange(p).head_ranks < p.context_parallel_degree && sees_a_part && !config.training.cuda_graphs;
}

TokenSplit token_split(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  // A microbatch's tokens are divided over the ranks of sequence parallelism, and into the blocks of float8.
  const std::int64_t unit = std::lcm(p.sequence_parallel ? p.tensor_parallel_degree : 1,
                                     config.training.linear_dtype == LinearDType::float8 ? 16 : 1);
  return {.seq_len = config.training.seq_len,
          .cp = static_cast<int>(p.context_parallel_degree),
          .balancer = p.context_parallel_load_balancer,
          .multiple = unit / std::gcd(unit, config.training.micro_batch_size),
          .window = window_of_all(config),
          .other_window = other_window(config)};
}

LayerOptions layer_options(const RunConfig& config, int rank) {
  const MeshShape mesh = config.mesh_shape();
  LayerOptions options;
  options.model = config.model;
  options.dtype = config.training.dtype;
  options.grad_dtype = config.training.grad_dtype.value_or(accumulate_dtype(options.dtype));
  options.is_float8 = config.training.linear_dtype == LinearDType::float8;
  options.lora = config.lora;
  options.recompute.operations = config.training.recompute;
  if (config.training.recompute_method == RecomputeMethod::block)
    options.recompute.num_blocks = config.training.recompute_num_layers;
  options.mlp_chunk = mlp_chunk(config.training);
  options.masks_documents = config.data.reset_attention_mask;
  options.windows = windows_with_ranges(config);
  options.num_sequences = config.training.micro_batch_size;
  options.tokens = tokens_of(config, mesh, rank);
  options.seq_len = options.tokens ? options.tokens->rows : config.training.seq_len;
  options.skips_unseen_keys = skips_unseen_keys(config);
  options.has_positions = has_positions(config);
  options.router_losses = router_losses(config);
  options.freezes_router = config.moe.freeze_router;
  options.forces_balance = config.moe.force_balance;
  options.ep = static_cast<int>(config.parallelism.expert_parallel_degree);
  options.etp = num_feature_ranks(config.parallelism);
  const int num_expert_ranks = options.num_expert_ranks(),
            place = num_expert_ranks > 1 ? mesh.place_in(expert_group(num_expert_ranks), rank).index : 0;
  options.ep_rank = place / options.etp;
  options.etp_rank = place % options.etp;
  options.ep_on_node = ep_on_node(config);
  options.expert_capacity = expert_capacity(config.moe, config.model.mixture, config.training.seq_len);
  options.drops_by_score = config.moe.capacity_order == CapacityOrder::score;
  options.dispatch_bound = config.moe.dispatch_bound;
  if (options.ep > 1 && !config.expert_load.is_balanced())
    options.expert_shares = shares_of_ranks(config.expert_load, config.model.mixture, options.ep);
  options.kept_shares = kept_shares_of_ranks(config);
  options.tp = mesh.degree(Axis::tp);
  options.divides_expert_features = divides_experts_as_dense(config.parallelism);
  options.tp_rank = mesh.coordinate(rank, Axis::tp);
  options.sequence_parallel = config.parallelism.sequence_parallel && options.tp > 1;
  options.device = {
      .head_chunk = head_chunk(config.training),
      .rounds_logits = logits_dtype(config.training, options.dtype) != accumulate_dtype(options.dtype),
      .vocabulary_multiple = vocabulary_multiple(config.training),
      .gives_attention_scratch = may_use_cudnn_backward(config),
      .gives_dq_sums = !is_on_gpu(config.training),
  };
  return options;
}

StagePart& add_stage(ModelPart& part, const RunConfig& config, int rank, int index, const StageLayers& layers,
                     Param* tied_weight) {
  const MeshShape mesh = config.mesh_shape();
  const ShardOptions options = shard_options(config);
  StagePart& made = part.stages.emplace_back();
  made.index = index;
  made.layers = layers;
  made.stage = std::make_unique<Stage>(part.options, layers, tied_weight);
  for (int unit = 0; unit < made.stage->num_units(); ++unit)
    made.units.emplace_back(made.stage->unit_params(unit), options, mesh, rank);
  if (made.stage->has_tied_weight()) {
    // The last stage's copy of the tied weight is the first stage's, updated in the same way.
    ShardOptions of_tied = options;
    of_tied.is_first_copy = made.is_first();
    if (part.rank_of_stage.front() != part.rank_of_stage.back()) made.stage->tied_weight()->groups.tied = tied_group;
    made.units.emplace_back(made.stage->unit_params(made.stage->num_units()), of_tied, mesh, rank);
  }
  return made;
}

namespace {

/// The stages of one rank; the head borrows the tied weight of an embedding next to it.
void add_stages(ModelPart& part, const RunConfig& config, int rank) {
  const std::vector<StageLayers> layout =
      stage_layout(config.model.num_hidden_layers, static_cast<int>(part.rank_of_stage.size()),
                   config.parallelism.pipeline_parallel_layout);
  Param* tied_weight = nullptr;
  for (int index = 0; index < static_cast<int>(layout.size()); ++index) {
    if (!part.holds(index)) continue;
    const StageLayers& layers = layout[static_cast<std::size_t>(index)];
    const StagePart& made = add_stage(part, config, rank, index, layers, layers.has_head ? tied_weight : nullptr);
    // Schedules may compute the weight gradient of one of two stages before the other's, so neither overwrites it.
    if (tied_weight != nullptr && made.is_last()) tied_weight->is_overwritten_by_first_matmul = false;
    if (made.is_first()) tied_weight = made.stage->tied_weight();
  }
}

}  // namespace

ShardOptions shard_options(const RunConfig& config) {
  const MeshShape mesh = config.mesh_shape();
  const int num_shards = std::max(mesh.group_size(shard_group, 0), num_expert_holders(config)),
            num_replicas = mesh.group_size(replicate_group, 0);
  const TrainingConfig& training = config.training;
  ShardOptions options;
  options.level = num_shards > 1 ? static_cast<int>(config.parallelism.zero_level) : 0;
  options.reduces_parts = num_shards > 1 && num_replicas > 1;
  options.dtype = training.dtype;
  options.grad_dtype = training.grad_dtype.value_or(accumulate_dtype(options.dtype));
  options.reduce_dtype =
      num_shards * num_replicas > 1 ? training.reduce_dtype.value_or(options.grad_dtype) : options.grad_dtype;
  options.moments_dtype = config.optimizer.moments_dtype.value_or(accumulate_dtype(options.dtype));
  options.stores_remainders = config.optimizer.store_param_remainders;
  return options;
}

ModelPart make_model_part(const RunConfig& config, const Schedule& schedule, int rank) {
  ModelPart part;
  part.options = layer_options(config, rank);
  part.pipeline_rank = config.mesh_shape().coordinate(rank, Axis::pp);
  part.rank_of_stage = schedule.rank_of_stage;
  add_stages(part, config, rank);
  return part;
}

std::int64_t ModelPart::num_key_ranges() const {
  return std::ssize(options.windows) * (options.tokens ? options.tokens->blocks.num_blocks() : 1);
}

std::int64_t ModelPart::batch_size(BufferRole role) const {
  const std::int64_t N = options.num_tokens();
  if (!options.tokens) {
    if (role == BufferRole::key_begin) return std::ssize(options.windows) * N;
    const bool is_read = role == BufferRole::tokens || role == BufferRole::targets ||
                         (role == BufferRole::positions && options.has_positions) ||
                         (role == BufferRole::places && options.model.has_experts());
    return is_read ? N : 0;
  }
  const KeyBlockSizes& blocks = options.tokens->blocks;
  const std::int64_t ranges = options.num_sequences * blocks.num_blocks() * blocks.num_query_rows();
  const bool is_exchanged = blocks.ranks_of_block() > 1;
  switch (role) {
    case BufferRole::key_begin: return std::ssize(options.windows) * ranges;
    case BufferRole::key_end: return blocks.queries_are_whole() ? 0 : ranges;
    case BufferRole::rows_by_position: return options.num_sequences * blocks.num_gathered_rows();
    case BufferRole::rows_by_rank: return is_exchanged ? blocks.ranks_of_block() * N : 0;
    case BufferRole::positions: return options.has_positions ? N : 0;
    case BufferRole::places: return options.model.has_experts() ? N : 0;
    default: return N;
  }
}

std::vector<Param*> ModelPart::rounded_weights() const {
  std::vector<Param*> weights = params();
  std::erase_if(weights, [](const Param* param) { return !param->is_rounded; });
  return weights;
}

Sizes ModelPart::weight_amax_sizes() const {
  const std::vector<Param*> weights = rounded_weights();
  return weights.empty() ? Sizes() : Sizes{std::ssize(weights)};
}

Sizes ModelPart::router_sums_sizes() const {
  const std::int64_t num_layers = options.model.mixture.num_layers_of(options.model.num_hidden_layers);
  if (num_layers == 0) return {};
  return {num_layers, RouterSums{options.model.mixture.num_experts}.num_columns()};
}

Sizes ModelPart::router_loads_sizes() const {
  if (options.router_losses.global == 0 || router_sums_sizes().num_dims() == 0) return {};
  return {router_sums_sizes()[0], options.model.mixture.num_experts};
}

Sizes ModelPart::exchange_counts_sizes() const {
  if (options.num_expert_ranks() == 1 || router_sums_sizes().num_dims() == 0) return {};
  return {router_sums_sizes()[0], ExchangeCounts::num_columns};
}

Sizes ModelPart::router_bias_sizes() const { return echelon::router_bias_sizes(options.model); }

const StagePart& ModelPart::stage(int index) const {
  for (const StagePart& each : stages)
    if (each.index == index) return each;
  throw Failure(fmt::format("stage {} is asked of pipeline rank {}, which does not hold it", index, pipeline_rank));
}

StagePart& ModelPart::stage(int index) { return const_cast<StagePart&>(std::as_const(*this).stage(index)); }

bool ModelPart::holds(int stage) const {
  return stage >= 0 && stage < static_cast<int>(rank_of_stage.size()) &&
         rank_of_stage[static_cast<std::size_t>(stage)] == pipeline_rank;
}

int ModelPart::peer_of(const Action& transfer) const {
  const bool goes_down = transfer.kind == ActionKind::receive_forward || transfer.kind == ActionKind::send_backward;
  return rank_of_stage.at(static_cast<std::size_t>(goes_down ? transfer.stage - 1 : transfer.stage + 1));
}

ShardedUnit& ModelPart::unit(const Action& action) {
  StagePart& part = stage(action.stage);
  const bool is_borrowed = action.unit == part.stage->num_units() && !part.stage->has_tied_weight();
  return is_borrowed ? stage(0).units.back() : part.units.at(static_cast<std::size_t>(action.unit));
}

std::vector<ShardedUnit*> ModelPart::units() {
  std::vector<ShardedUnit*> units;
  for (StagePart& each : stages)
    for (ShardedUnit& unit : each.units) units.push_back(&unit);
  return units;
}

std::vector<const ShardedUnit*> ModelPart::units() const {
  std::vector<const ShardedUnit*> units;
  for (const StagePart& each : stages)
    for (const ShardedUnit& unit : each.units) units.push_back(&unit);
  return units;
}

std::vector<Param*> ModelPart::params() const {
  std::vector<Param*> params;
  for (const ShardedUnit* unit : units())
    for (const Bucket& bucket : unit->buckets())
      for (const Segment& segment : bucket.segments) params.push_back(segment.param);
  return params;
}

}  // namespace echelon
