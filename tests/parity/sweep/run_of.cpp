// From settings to a config: what follows from several axes together.
#include "parity/sweep/axes.h"
#include "schedule/draw/torch_csv.h"
#include "schedule/random_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace echelon::testing {
namespace {

int num_virtual(const Draft& draft) {
  const ParallelConfig& p = draft.config.parallelism;
  if (p.virtual_stages > 0) return static_cast<int>(p.virtual_stages);
  return draft.reads_schedule ? 2 : entry_of(p.pipeline_parallel_schedule).default_virtual;
}

void set_layers(Draft& draft) {
  const std::int64_t stages = draft.config.parallelism.pipeline_parallel_degree * num_virtual(draft);
  std::int64_t& layers = draft.config.model.num_hidden_layers;
  PipelineLayout& layout = draft.config.parallelism.pipeline_parallel_layout;
  // Where the first layer is dense, another one has the experts.
  const std::int64_t least = draft.has_experts && draft.expert_layers != ExpertLayers::all ? 2 : 1;
  switch (draft.split) {
    case LayerSplit::even: layers = std::max(stages, least); break;
    case LayerSplit::remainder: layers = stages + 1; break;
    case LayerSplit::counts:  // three in the middle
      layers = stages + 2;
      layout.counts.assign(static_cast<std::size_t>(stages), 1);
      layout.counts[static_cast<std::size_t>(stages / 2)] = 3;
      break;
    case LayerSplit::letters:  // E|tt|t|t|tL
      layers = std::max<std::int64_t>(stages, 2);
      layout.letters = stages == 1   ? "EttL"
                       : stages == 2 ? "E|ttL"
                       : stages == 3 ? "E|tt|tL"
                                     : fmt::format("E|tt|(t|)*{}tL", stages - 3);
      break;
    case LayerSplit::thin: layers = std::max(stages - 2, least); break;
  }
}

bool has_latents(Family family) { return family == Family::deepseek_v2 || family == Family::deepseek_v3; }

void set_experts(Draft& draft) {
  MixtureSpec& mixture = draft.config.model.mixture;
  ParallelConfig& p = draft.config.parallelism;
  const std::int64_t E = draft.num_experts, k = draft.num_experts_per_tok > 0 ? draft.num_experts_per_tok : E;
  mixture.num_experts = E;
  mixture.num_experts_per_tok = k;
  mixture.moe_intermediate_size = draft.sizes_divide ? 24 : 23;
  const Family family = draft.config.model.family;
  const bool counts_first_dense = family == Family::dots1 || has_latents(family);
  const bool has_shared_expert = mixture.gates_shared_expert || counts_first_dense;
  mixture.shared_expert_intermediate_size = has_shared_expert ? mixture.moe_intermediate_size : 0;
  mixture.norm_topk_prob = mixture.norm_topk_prob || draft.normalises;
  mixture.topk_group = mixture.n_group > 1 && k > E / 2 ? 2 : 1;
  mixture.decoder_sparse_step = draft.expert_layers == ExpertLayers::every_second ? 2 : 1;
  mixture.first_k_dense_replace = 0;
  if (draft.expert_layers == ExpertLayers::all_but_the_first) {
    if (counts_first_dense)
      mixture.first_k_dense_replace = 1;
    else
      mixture.mlp_only_layers = {0};
  }
  if (draft.divides_experts) p.expert_tensor_parallel_degree = p.tensor_parallel_degree;
  if (draft.receives_all_at_once) draft.config.moe.dispatch_bound = static_cast<double>(p.expert_parallel_degree);
}

/// DeepSeek-V3 has queries from a latent, too.
void set_latents(ModelSpec& model) {
  model.hidden_size = 24;
  model.head_dim = 6;
  model.kv_lora_rank = 7;
  model.q_lora_rank = model.family == Family::deepseek_v3 ? 5 : 0;
  model.qk_rope_head_dim = 4;
  model.v_head_dim = 3;
}

void set_sizes(Draft& draft) {
  ModelSpec& model = draft.config.model;
  ParallelConfig& p = draft.config.parallelism;
  const bool has_groups = p.context_parallel_method == ContextMethod::ulysses_ring && p.context_parallel_degree > 1;
  // Two neighbours exchange heads, or all of an odd number.
  p.context_parallel_ulysses_degree = !has_groups                          ? 0
                                      : p.context_parallel_degree % 2 == 0 ? 2
                                                                           : p.context_parallel_degree;
  model.num_attention_heads = draft.sizes_divide ? 12 : 10;
  // Ranks of context parallelism divide the heads of each tensor-parallel rank.
  const std::int64_t u = key_exchange(p).head_ranks, unit = u > 1 ? u * p.tensor_parallel_degree : 1;
  model.num_attention_heads = (model.num_attention_heads + unit - 1) / unit * unit;
  model.num_key_value_heads = draft.num_kv_heads > 0 ? draft.num_kv_heads : model.num_attention_heads;
  model.head_dim = 4;
  model.hidden_size = model.qk_norm ? 24 : model.num_attention_heads * model.head_dim;
  model.intermediate_size = draft.sizes_divide ? 48 : 47;
  model.vocab_size = draft.sizes_divide ? 72 : 61;
  model.max_position_embeddings = 16;
  model.initializer_range = 0.15;
  if (draft.has_experts) set_experts(draft);
  if (has_latents(model.family)) set_latents(model);
  model.sliding_window = draft.window;
  model.max_window_layers = draft.first_window_layer;
}

void set_training(Draft& draft) {
  TrainingConfig& t = draft.config.training;
  t.steps = 3;
  t.dtype = DType::float64;
  t.global_batch_size = draft.config.data_parallel_degree() * draft.microbatches * t.micro_batch_size;
  draft.config.optimizer.lr = 1e-2;
  // GPT-2's key biases have no gradient in theory: the update divides their rounding noise by its own root plus eps.
  // With 1e-8 little but noise would be left, and with 1e-7 it reaches the limit of 1e-9 where cp sums in another
  // order.
  draft.config.optimizer.eps = 1e-6;
}

/// The fewest ranks of a node over which rows go in two hops; two where none do.
void set_nodes(RunConfig& config) {
  ParallelConfig& p = config.parallelism;
  for (p.ranks_per_node = 2; p.ranks_per_node < config.mesh_shape().num_ranks(); ++p.ranks_per_node)
    if (ep_on_node(config) > 0) return;
  p.ranks_per_node = 2;
}

/// Passes in a random order, several stages a rank, some backwards split.
void write_schedule(Draft& draft, const std::string& folder) {
  const RandomScheduleOptions order = {.num_ranks = static_cast<int>(draft.config.parallelism.pipeline_parallel_degree),
                                       .num_virtual = num_virtual(draft),
                                       .num_microbatches = draft.microbatches};
  const std::string path =
      fmt::format("{}/order_p{}_v{}_m{}.csv", folder, order.num_ranks, order.num_virtual, order.num_microbatches);
  std::filesystem::create_directories(folder);
  std::ofstream(path) << to_torch_csv(random_schedule(order));
  draft.config.parallelism.pipeline_parallel_schedule_csv = path;
}

}  // namespace

Draft draft_of(const SweepTable& table, const Settings& settings) {
  Draft draft;
  for (std::size_t axis = 0; axis < table.axes.size(); ++axis)
    if (settings[axis] != not_set) table.axes[axis].settings[settings[axis]].set(draft);
  return draft;
}

SweepRun run_of(const SweepTable& table, const SweepRow& row, const std::string& folder) {
  Draft draft = draft_of(table, row.settings);
  ParallelConfig& p = draft.config.parallelism;
  if (draft.fills_the_world) p.data_parallel_shard_degree = row.world_size / ranks_per_shard(p);
  set_sizes(draft);
  set_layers(draft);
  set_training(draft);
  if (draft.has_nodes) set_nodes(draft.config);
  if (draft.reads_schedule) write_schedule(draft, folder);
  return {draft.config, draft.targets};
}

std::string describe(const SweepTable& table, const SweepRow& row) {
  std::string text;
  for (std::size_t axis = 0; axis < table.axes.size(); ++axis)
    text += fmt::format("  {} = {}\n", table.axes[axis].name, table.axes[axis].settings[row.settings[axis]].name);
  return text;
}

}  // namespace echelon::testing
