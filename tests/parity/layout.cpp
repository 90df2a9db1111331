#include "parity/layout.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

namespace echelon::testing {
namespace {

int num_stages(const Layout& layout) {
  return layout.pp * (layout.virtual_stages > 0 ? layout.virtual_stages : entry_of(layout.schedule).default_virtual);
}

/// With experts it is the family like this one that has some; Mixtral has them in every layer.
Family family_of(const Layout& layout) {
  if (layout.experts == 0) return layout.family;
  if (layout.family == Family::qwen2) return Family::qwen2_moe;
  return layout.family == Family::qwen3 || layout.dense_between ? Family::qwen3_moe : Family::mixtral;
}

/// A tiny model whose vocabulary, heads and feed-forward width do not divide by most degrees.
ModelSpec tiny_model(const Layout& layout) {
  ModelSpec model = family_defaults(family_of(layout));
  const bool is_power_of_two = (layout.tp & (layout.tp - 1)) == 0;
  model.num_attention_heads = is_power_of_two ? 8 : 7;
  model.num_key_value_heads = layout.family == Family::gpt2 || !is_power_of_two ? model.num_attention_heads : 2;
  model.head_dim = 4;
  model.hidden_size = layout.family == Family::qwen3 ? 24 : model.num_attention_heads * model.head_dim;
  model.num_hidden_layers = layout.layers > 0 ? layout.layers : num_stages(layout) + 1;
  model.intermediate_size = 45;
  model.vocab_size = 61;
  model.max_position_embeddings = 64;
  model.initializer_range = 0.15;
  model.tie_word_embeddings = layout.tied;
  model.sliding_window = layout.window;
  const bool has_windows_of_layers = model.family == Family::qwen2 || model.family == Family::qwen3;
  model.max_window_layers = layout.window > 0 && has_windows_of_layers ? 1 : 0;
  const bool gates = model.mixture.gates_shared_expert;
  if (layout.experts > 0)
    model.mixture = {.num_experts = layout.experts,
                     .num_experts_per_tok = 2,
                     .moe_intermediate_size = 13,
                     .norm_topk_prob = layout.experts % 2 == 1,
                     .shared_expert_intermediate_size = layout.experts % 3 == 0 || gates ? 11 : 0,
                     .gates_shared_expert = gates,
                     .decoder_sparse_step = layout.dense_between ? 2 : 1};
  return model;
}

}  // namespace

std::string name_of(const Layout& layout) {
  std::ostringstream name;
  name << echelon::name_of(layout.family) << (layout.tied ? "_tied" : "") << "_replicate" << layout.replicate
       << "_shard" << layout.shard << "_tp" << layout.tp << (layout.sequence_parallel ? "sp" : "") << "_pp"
       << layout.pp;
  if (layout.pp > 1 || layout.schedule != PipelineSchedule::one_f_one_b) {
    name << "_";
    for (const char letter : echelon::name_of(layout.schedule))
      if (std::isalnum(static_cast<unsigned char>(letter)) != 0)
        name << static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (layout.virtual_stages > 0) name << "_v" << layout.virtual_stages;
  }
  name << "_layers" << layout.layers;
  for (const std::int64_t layers : layout.layers_per_stage) name << "_" << layers;
  name << "_m" << layout.microbatches;
  if (layout.zero != 1) name << "_zero" << layout.zero;
  if (layout.reshard != ReshardAfterForward::microbatch) name << "_" << echelon::name_of(layout.reshard);
  if (layout.prefetch != 1) name << "_ahead" << layout.prefetch;
  if (layout.documents) name << "_documents";
  if (layout.positions) name << "_positions";
  if (layout.balance) name << "_balanced";
  if (layout.cp > 1) name << "_cp" << layout.cp << "_" << echelon::name_of(layout.balancer);
  if (layout.method != ContextMethod::ring) name << "_" << echelon::name_of(layout.method);
  if (layout.ulysses > 0) name << layout.ulysses;
  if (!layout.recompute.empty()) name << "_recompute" << echelon::names_of(layout.recompute).size();
  if (layout.window > 0) name << "_window" << layout.window;
  if (layout.experts > 0)
    name << "_experts" << layout.experts << (layout.dense_between ? "_and_dense" : "")
         << (layout.router_losses ? "_losses" : "");
  if (layout.ep > 1) name << "_ep" << layout.ep << "_bound" << std::llround(100 * layout.bound);
  if (layout.ranks_per_node > 0) name << "_node" << layout.ranks_per_node;
  if (layout.capacity < 1e6)
    name << "_capacity" << std::llround(100 * layout.capacity) << (layout.drops_by_score ? "_score" : "");
  if (layout.etp > 0) name << "_etp" << layout.etp;
  if (layout.seq_len > 0) name << "_T" << layout.seq_len;
  if (!layout.order.empty()) name << "_order_";
  for (const char letter : layout.order) name << (letter == '-' ? '_' : letter);
  return name.str();
}

void PrintTo(const Layout& layout, std::ostream* out) { *out << name_of(layout); }

RunConfig config_of(const Layout& layout) {
  RunConfig config;
  config.model = tiny_model(layout);
  if (layout.router_losses)
    config.moe = {.seq_aux_loss_coeff = 0.2, .global_aux_loss_coeff = 0.3, .z_loss_coeff = 0.05};
  config.data.reset_attention_mask = layout.documents;
  config.data.reset_position_ids = layout.positions;
  config.data.balance_batch = layout.balance;
  config.training.steps = 10;
  config.training.seq_len = layout.seq_len > 0 ? layout.seq_len : layout.sequence_parallel ? 4 * layout.tp : 12;
  config.training.micro_batch_size = 2;
  config.training.global_batch_size = 2 * layout.microbatches * layout.replicate * layout.shard;
  config.training.dtype = DType::float64;
  config.optimizer.lr = 1e-2;
  // GPT-2's key biases have no gradient in theory: with 1e-8, rounding noise would be divided by little more than
  // itself.
  config.optimizer.eps = 1e-7;
  config.lr_scheduler.warmup_steps = 3;
  config.parallelism.data_parallel_replicate_degree = layout.replicate;
  config.parallelism.data_parallel_shard_degree = layout.shard;
  config.parallelism.zero_level = layout.zero;
  config.parallelism.reshard_after_forward = layout.reshard;
  config.parallelism.prefetch_depth = layout.prefetch;
  config.parallelism.tensor_parallel_degree = layout.tp;
  config.parallelism.sequence_parallel = layout.sequence_parallel;
  config.parallelism.context_parallel_degree = layout.cp;
  config.parallelism.context_parallel_load_balancer = layout.balancer;
  config.parallelism.context_parallel_method = layout.method;
  config.parallelism.context_parallel_ulysses_degree = layout.ulysses;
  config.parallelism.expert_parallel_degree = layout.ep;
  config.parallelism.expert_tensor_parallel_degree = layout.etp;
  config.moe.dispatch_bound = layout.bound;
  config.parallelism.ranks_per_node = layout.ranks_per_node;
  if (layout.ranks_per_node > 0)
    config.parallelism.expert_dispatch =
        layout.ranks_per_node == 1 ? ExpertDispatch::all_gather : ExpertDispatch::hierarchical;
  config.moe.capacity_factor = layout.capacity;
  if (layout.drops_by_score) config.moe.capacity_order = CapacityOrder::score;
  config.training.recompute = layout.recompute;
  config.parallelism.pipeline_parallel_degree = layout.pp;
  config.parallelism.pipeline_parallel_schedule = layout.schedule;
  config.parallelism.virtual_stages = layout.virtual_stages;
  config.parallelism.pipeline_parallel_layout.counts = layout.layers_per_stage;
  if (!layout.order.empty()) config.parallelism.order = parse_axis_order("parallelism.order", {layout.order});
  return config;
}

RunConfig in_float8(RunConfig config) {
  config.model.hidden_size = 64;
  config.model.num_attention_heads = config.model.num_key_value_heads = 4;
  config.model.head_dim = 16;
  config.model.intermediate_size = 128;
  config.model.max_position_embeddings = config.training.seq_len = 16;
  config.training.linear_dtype = LinearDType::float8;
  return config;
}

std::vector<Layout> grid() {
  std::vector<Layout> layouts;
  for (int dp = 1; dp <= 8; ++dp)
    for (int tp = 1; dp * tp <= 8; ++tp)
      for (int pp = 1; dp * tp * pp <= 8; ++pp)
        for (const bool sharded : {false, true})
          for (const bool sequence_parallel : {false, true})
            for (const auto schedule :
                 {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe, PipelineSchedule::naive}) {
              if ((sharded && dp == 1) || (sequence_parallel && tp == 1) ||
                  (schedule != PipelineSchedule::one_f_one_b && pp == 1))
                continue;
              Layout layout = {.replicate = sharded ? 1 : dp,
                               .shard = sharded ? dp : 1,
                               .tp = tp,
                               .pp = pp,
                               .sequence_parallel = sequence_parallel,
                               .schedule = schedule};
              layout.tied = (dp + tp + pp) % 2 == 0;
              layout.microbatches = 1 + (dp + pp) % 3;
              layout.family = static_cast<Family>((dp + 2 * tp + 3 * pp) % 4);
              layouts.push_back(layout);
            }
  return layouts;
}

std::vector<Layout> schedule_rows() {
  using Kind = PipelineSchedule;
  std::vector<Layout> layouts;
  int index = 0;
  for (const ScheduleEntry& entry : all_schedules()) {
    for (const int pp : {1, 2, 3, 4}) {
      for (const int more : {0, 1, 3}) {  // microbatches beyond the least
        Layout layout = {
            .pp = pp, .schedule = entry.kind, .microbatches = std::max(1, entry.microbatches_per_rank * pp) + more};
        if (entry.most_virtual > 2) layout.virtual_stages = 2 + index % 2;
        if (index % 4 == 1) layout.shard = 2;
        if (index % 4 >= 2) layout.replicate = 2;
        if (index % 4 == 3 && pp < 4) layout.shard = 2;
        if (layout.shard > 1) layout.zero = 1 + index / 4 % 3;
        if (layout.zero == 3) layout.reshard = static_cast<ReshardAfterForward>(index % 3);
        if (index % 3 == 1 && pp < 4) layout.tp = 2;
        layout.sequence_parallel = layout.tp > 1 && index % 2 == 0;
        layout.tied = index % 5 < 2;
        layout.family = static_cast<Family>(index % 4);
        layouts.push_back(layout);
        index += 1;
      }
    }
  }
  // more stages than layers: the embedding or the head alone; stages as the user cuts them
  layouts.push_back({.shard = 2, .pp = 4, .schedule = Kind::zb_v, .microbatches = 5, .tied = true, .layers = 7});
  layouts.push_back(
      {.pp = 3, .schedule = Kind::interleaved_one_f_one_b, .virtual_stages = 2, .microbatches = 3, .layers = 4});
  layouts.push_back({.replicate = 2,
                     .pp = 2,
                     .schedule = Kind::dualpipe_v,
                     .microbatches = 4,
                     .tied = true,
                     .layers = 9,
                     .layers_per_stage = {1, 5, 1, 2}});
  return layouts;
}

namespace {

/// ZeRO-2 and 3, and hybrid sharding.
std::vector<Layout> sharded_rows() {
  const auto gpipe = PipelineSchedule::gpipe, naive = PipelineSchedule::naive;
  const auto never = ReshardAfterForward::never, step = ReshardAfterForward::step;
  std::vector<Layout> layouts = {
      // a shard group of one rank with accumulation: gradients must not double from microbatch to microbatch
      {.microbatches = 7, .zero = 3},
      {.replicate = 2, .microbatches = 3, .zero = 2},
      // several families, all ways of resharding
      {.shard = 4, .microbatches = 2, .family = Family::gpt2, .zero = 3, .reshard = never},
      {.shard = 2, .microbatches = 3, .family = Family::qwen3, .tied = true, .zero = 3, .reshard = step},
      // with a pipeline, where microbatches are under way at the same time
      {.shard = 2, .pp = 2, .schedule = gpipe, .microbatches = 3, .zero = 3, .reshard = never},
      {.shard = 2,
       .pp = 3,
       .microbatches = 4,
       .tied = true,
       .zero = 3,
       .reshard = step,
       .layers = 7,
       .layers_per_stage = {1, 5, 1}},
      {.shard = 2, .pp = 4, .microbatches = 5, .zero = 3, .reshard = never},
      {.shard = 2, .pp = 2, .schedule = naive, .microbatches = 2, .zero = 2},
      // input and weight gradients apart, and several virtual stages a rank; in a V both ends of the model, and with
      // them the tied weight, lie on one rank
      {.shard = 2, .pp = 2, .schedule = PipelineSchedule::zb_h1, .microbatches = 6, .tied = true, .zero = 2},
      {.shard = 2,
       .pp = 2,
       .schedule = PipelineSchedule::interleaved_zero_bubble,
       .microbatches = 4,
       .tied = true,
       .zero = 3,
       .layers = 5},
      {.shard = 2,
       .pp = 2,
       .schedule = PipelineSchedule::interleaved_one_f_one_b,
       .microbatches = 4,
       .tied = true,
       .zero = 2,
       .layers = 5},
      {.shard = 2,
       .pp = 2,
       .schedule = PipelineSchedule::zb_v,
       .microbatches = 4,
       .family = Family::gpt2,
       .tied = true,
       .zero = 2,
       .layers = 5},
      {.shard = 2,
       .pp = 2,
       .schedule = PipelineSchedule::zb_v,
       .microbatches = 4,
       .tied = true,
       .zero = 3,
       .reshard = never,
       .layers = 5},
      {.replicate = 2,
       .shard = 2,
       .pp = 2,
       .schedule = PipelineSchedule::dualpipe_v,
       .microbatches = 4,
       .tied = true,
       .zero = 3,
       .layers = 5},
      // hybrid sharding by itself, with one more axis, and with all
      {.replicate = 2, .shard = 3, .microbatches = 3, .zero = 1},
      {.replicate = 2,
       .shard = 2,
       .tp = 2,
       .sequence_parallel = true,
       .microbatches = 3,
       .family = Family::gpt2,
       .tied = true,
       .zero = 1},
      {.replicate = 3, .shard = 2, .microbatches = 2, .tied = true, .zero = 2},
      {.replicate = 2, .shard = 2, .pp = 2, .microbatches = 3, .tied = true, .zero = 2},
      {.replicate = 2, .shard = 2, .tp = 2, .sequence_parallel = true, .microbatches = 2, .zero = 3},
      {.replicate = 2,
       .shard = 2,
       .tp = 2,
       .pp = 2,
       .sequence_parallel = true,
       .microbatches = 3,
       .family = Family::qwen2,
       .tied = true,
       .zero = 3},
  };
  for (const int zero : {2, 3}) {
    // the last microbatch only, and levels that disagree under accumulation
    layouts.push_back({.shard = 2, .microbatches = 3, .zero = zero});
    layouts.push_back({.shard = 2, .microbatches = 1, .zero = zero});
    // parameters that no shard degree divides
    layouts.push_back({.shard = 3, .microbatches = 2, .zero = zero});
    layouts.push_back({.shard = 7, .microbatches = 2, .family = Family::gpt2, .tied = true, .zero = zero});
    // a tied embedding on both ends of a pipeline
    layouts.push_back({.shard = 2, .pp = 2, .microbatches = 3, .family = Family::gpt2, .tied = true, .zero = zero});
    layouts.push_back({.shard = 2,
                       .tp = 2,
                       .pp = 2,
                       .sequence_parallel = true,
                       .microbatches = 3,
                       .family = Family::qwen2,
                       .tied = true,
                       .zero = zero});
    // gradients that are partial on tensor-parallel ranks: norms and shared key/value heads
    layouts.push_back(
        {.shard = 2, .tp = 2, .sequence_parallel = true, .microbatches = 2, .family = Family::qwen3, .zero = zero});
    layouts.push_back({.shard = 2, .tp = 4, .microbatches = 3, .zero = zero});
    layouts.push_back(
        {.shard = 2, .tp = 3, .sequence_parallel = true, .microbatches = 2, .family = Family::gpt2, .zero = zero});
  }
  return layouts;
}

}  // namespace

std::vector<Layout> order_rows() {
  return {
      // Megatron's: replicas inside the pipeline
      {.replicate = 2, .shard = 2, .pp = 2, .microbatches = 3, .tied = true, .zero = 2, .order = "tp-dp-pp"},
      // the tensor-parallel ranks furthest apart
      {.shard = 2,
       .tp = 2,
       .pp = 2,
       .sequence_parallel = true,
       .microbatches = 3,
       .family = Family::qwen2,
       .tied = true,
       .zero = 3,
       .order = "pp-dp-tp"},
      // those that share a key/value head, too
      {.shard = 2, .tp = 4, .microbatches = 3, .order = "dp_replicate-dp_shard-tp"},
  };
}

std::vector<Layout> context_rows() {
  const auto none = LoadBalancer::none, striped = LoadBalancer::striped;
  return {
      {.microbatches = 2, .cp = 2},
      {.microbatches = 1, .family = Family::gpt2, .tied = true, .cp = 3, .balancer = none},
      {.microbatches = 3, .family = Family::qwen2, .cp = 4, .balancer = striped},
      // lengths that do not divide: padding on some ranks, a rank with one token, a prime
      {.microbatches = 2, .family = Family::qwen3, .cp = 4, .seq_len = 13},
      {.microbatches = 2, .family = Family::gpt2, .cp = 5, .seq_len = 7},
      {.microbatches = 2, .cp = 7, .balancer = striped, .seq_len = 7},
      // documents, whose boundaries are anywhere
      {.microbatches = 2, .documents = true, .cp = 2, .seq_len = 17},
      {.microbatches = 2, .family = Family::gpt2, .documents = true, .cp = 3, .balancer = striped, .seq_len = 23},
      {.microbatches = 2, .tied = true, .documents = true, .cp = 4, .balancer = none, .seq_len = 31},
      // with each other axis
      {.replicate = 2, .microbatches = 2, .tied = true, .cp = 2},
      {.shard = 2, .microbatches = 3, .zero = 1, .cp = 3},
      {.shard = 2, .microbatches = 2, .family = Family::qwen2, .tied = true, .zero = 2, .cp = 2},
      {.shard = 1, .microbatches = 3, .zero = 3, .cp = 3, .seq_len = 13},
      {.shard = 2, .microbatches = 2, .zero = 3, .reshard = ReshardAfterForward::never, .cp = 2},
      {.tp = 2, .microbatches = 2, .family = Family::qwen3, .cp = 2},
      {.tp = 4, .microbatches = 2, .cp = 2, .seq_len = 13},  // kv heads on more ranks than there are
      {.tp = 2,
       .sequence_parallel = true,
       .microbatches = 2,
       .family = Family::gpt2,
       .tied = true,
       .cp = 2,
       .seq_len = 13},
      {.tp = 3, .sequence_parallel = true, .microbatches = 2, .family = Family::qwen3, .cp = 3, .seq_len = 16},
      {.pp = 2, .microbatches = 3, .tied = true, .documents = true, .cp = 2},
      {.pp = 2, .schedule = PipelineSchedule::zb_v, .microbatches = 4, .layers = 5, .cp = 2, .seq_len = 13},
      {.pp = 2,
       .schedule = PipelineSchedule::zb_h1,
       .microbatches = 4,
       .family = Family::gpt2,
       .cp = 2,
       .balancer = striped},
      {.replicate = 2,
       .shard = 2,
       .tp = 2,
       .pp = 2,
       .sequence_parallel = true,
       .microbatches = 2,
       .family = Family::qwen2,
       .tied = true,
       .zero = 3,
       .documents = true,
       .cp = 2,
       .seq_len = 19},
      {.shard = 2, .tp = 2, .microbatches = 2, .zero = 2, .order = "cp-tp-dp_shard", .cp = 2},
  };
}

std::vector<Layout> context_method_rows() {
  const auto none = LoadBalancer::none, striped = LoadBalancer::striped;
  const auto gather = ContextMethod::all_gather, ulysses = ContextMethod::ulysses, mixed = ContextMethod::ulysses_ring;
  std::vector<Layout> layouts = {
      // 8 query heads; 2 kv heads, which 4 and 8 ranks share, or 8
      {.microbatches = 2, .cp = 2, .method = ulysses},
      {.microbatches = 1, .family = Family::qwen3, .tied = true, .cp = 4, .balancer = none, .method = ulysses},
      {.microbatches = 2, .family = Family::gpt2, .cp = 8, .balancer = striped, .method = ulysses},
      {.microbatches = 2, .documents = true, .cp = 8, .seq_len = 19, .method = ulysses},
      {.tp = 2, .microbatches = 2, .cp = 4, .seq_len = 13, .method = ulysses},
      {.tp = 4, .sequence_parallel = true, .microbatches = 2, .cp = 2, .seq_len = 13, .method = ulysses},
      {.pp = 2,
       .schedule = PipelineSchedule::zb_v,
       .microbatches = 4,
       .layers = 5,
       .documents = true,
       .cp = 2,
       .seq_len = 13,
       .method = ulysses,
       .recompute = attention_internals},
      {.shard = 2, .microbatches = 2, .zero = 3, .cp = 2, .method = ulysses, .recompute = whole_block},
      {.microbatches = 2, .cp = 3, .seq_len = 13, .method = gather},
      {.microbatches = 2, .family = Family::gpt2, .documents = true, .cp = 5, .seq_len = 17, .method = gather},
      {.tp = 4, .microbatches = 1, .cp = 2, .balancer = striped, .seq_len = 13, .method = gather},
      {.tp = 2,
       .sequence_parallel = true,
       .microbatches = 2,
       .family = Family::qwen3,
       .cp = 2,
       .balancer = none,
       .seq_len = 13,
       .method = gather},
      {.pp = 2,
       .schedule = PipelineSchedule::zb_h1,
       .microbatches = 4,
       .documents = true,
       .cp = 2,
       .method = gather,
       .recompute = attention_internals},
      {.shard = 2, .microbatches = 2, .tied = true, .zero = 2, .cp = 2, .method = gather, .recompute = whole_block},
      {.microbatches = 2, .cp = 4, .method = mixed, .ulysses = 2},
      {.microbatches = 2,
       .family = Family::gpt2,
       .cp = 6,
       .balancer = striped,
       .seq_len = 13,
       .method = mixed,
       .ulysses = 2},
      {.microbatches = 2, .documents = true, .cp = 8, .seq_len = 19, .method = mixed, .ulysses = 4},
      {.microbatches = 2, .cp = 2, .method = mixed, .ulysses = 2},
      {.microbatches = 2, .cp = 3, .method = mixed, .ulysses = 1},
      {.tp = 2,
       .sequence_parallel = true,
       .microbatches = 2,
       .family = Family::qwen2,
       .documents = true,
       .cp = 4,
       .balancer = none,
       .seq_len = 19,
       .method = mixed,
       .ulysses = 2},
      {.pp = 2,
       .schedule = PipelineSchedule::zb_v,
       .microbatches = 4,
       .layers = 5,
       .cp = 4,
       .seq_len = 13,
       .method = mixed,
       .ulysses = 2,
       .recompute = attention_internals},
      {.shard = 2, .microbatches = 2, .zero = 3, .cp = 4, .method = mixed, .ulysses = 2},
  };
  // every axis at once, and another order of ranks
  for (const ContextMethod method : {gather, ulysses, mixed}) {
    Layout all = {.replicate = 2,
                  .tp = 2,
                  .pp = 2,
                  .sequence_parallel = true,
                  .microbatches = 2,
                  .family = Family::qwen2,
                  .tied = true,
                  .zero = 3,
                  .documents = true,
                  .cp = method == mixed ? 4 : 2,
                  .seq_len = 19,
                  .method = method,
                  .ulysses = method == mixed ? 2 : 0};
    if (method == mixed) all.replicate = 1;
    layouts.push_back(all);
    layouts.push_back({.shard = 2,
                       .tp = 2,
                       .microbatches = 2,
                       .zero = 2,
                       .order = "cp-tp-dp_shard",
                       .cp = method == mixed ? 4 : 2,
                       .method = method,
                       .ulysses = method == mixed ? 2 : 0});
  }
  return layouts;
}

std::vector<Layout> document_rows() {
  const auto per_document = LoadBalancer::per_document, packed = LoadBalancer::packed;
  const auto gather = ContextMethod::all_gather, ulysses = ContextMethod::ulysses, mixed = ContextMethod::ulysses_ring;
  return {
      // positions that restart: rotary and learned ones, with whole sequences, with and without their masks
      {.replicate = 2, .microbatches = 2, .documents = true, .positions = true},
      {.tp = 2, .sequence_parallel = true, .microbatches = 2, .family = Family::gpt2, .tied = true, .positions = true},
      {.tp = 2, .pp = 2, .microbatches = 2, .family = Family::qwen3, .documents = true, .positions = true},
      {.microbatches = 2, .documents = true, .cp = 3, .seq_len = 17, .positions = true},
      {.microbatches = 2,
       .family = Family::gpt2,
       .documents = true,
       .cp = 2,
       .balancer = LoadBalancer::striped,
       .seq_len = 13,
       .positions = true},
      // lists that each sequence has for itself
      {.microbatches = 2, .documents = true, .cp = 2, .balancer = per_document, .seq_len = 17},
      {.microbatches = 2, .documents = true, .cp = 4, .balancer = packed, .seq_len = 31, .positions = true},
      {.microbatches = 2, .family = Family::gpt2, .documents = true, .cp = 3, .balancer = packed, .seq_len = 23},
      {.microbatches = 2,
       .family = Family::qwen2,
       .documents = true,
       .cp = 5,
       .balancer = per_document,
       .seq_len = 7,
       .positions = true},
      {.tp = 2,
       .sequence_parallel = true,
       .microbatches = 2,
       .family = Family::gpt2,
       .tied = true,
       .documents = true,
       .cp = 3,
       .balancer = per_document,
       .seq_len = 19,
       .positions = true},
      {.shard = 2,
       .pp = 2,
       .schedule = PipelineSchedule::zb_v,
       .microbatches = 4,
       .zero = 2,
       .layers = 5,
       .documents = true,
       .cp = 2,
       .balancer = packed,
       .seq_len = 13,
       .positions = true},
      {.replicate = 2,
       .shard = 2,
       .tp = 2,
       .pp = 2,
       .sequence_parallel = true,
       .microbatches = 2,
       .family = Family::qwen3,
       .tied = true,
       .zero = 3,
       .documents = true,
       .cp = 2,
       .balancer = packed,
       .seq_len = 21,
       .positions = true,
       .balance = true},
      // methods that exchange heads or gather keys
      {.microbatches = 2, .documents = true, .cp = 3, .balancer = packed, .seq_len = 23, .method = gather},
      {.tp = 2,
       .sequence_parallel = true,
       .microbatches = 2,
       .family = Family::gpt2,
       .documents = true,
       .cp = 2,
       .balancer = per_document,
       .seq_len = 17,
       .method = gather,
       .positions = true},
      {.microbatches = 2, .documents = true, .cp = 4, .balancer = packed, .seq_len = 13, .method = ulysses},
      {.tp = 2,
       .microbatches = 2,
       .family = Family::qwen3,
       .documents = true,
       .cp = 4,
       .balancer = per_document,
       .seq_len = 19,
       .method = ulysses,
       .recompute = attention_internals,
       .positions = true},
      {.microbatches = 2,
       .family = Family::gpt2,
       .documents = true,
       .cp = 4,
       .balancer = per_document,
       .seq_len = 21,
       .method = mixed,
       .ulysses = 2},
      {.shard = 2,
       .pp = 2,
       .microbatches = 4,
       .zero = 3,
       .documents = true,
       .cp = 4,
       .balancer = packed,
       .seq_len = 27,
       .method = mixed,
       .ulysses = 2,
       .positions = true,
       .balance = true},
      // sequences in another order
      {.replicate = 2, .microbatches = 3, .documents = true, .balance = true},
      {.shard = 3, .pp = 2, .microbatches = 3, .zero = 2, .documents = true, .positions = true, .balance = true},
      // of eight processes
      {.shard = 2,
       .pp = 2,
       .microbatches = 2,
       .tied = true,
       .zero = 3,
       .documents = true,
       .cp = 2,
       .balancer = packed,
       .seq_len = 29,
       .positions = true,
       .balance = true},
  };
}

std::vector<Layout> window_rows() {
  const auto none = LoadBalancer::none, striped = LoadBalancer::striped;
  return {
      {.microbatches = 3, .family = Family::qwen2, .window = 4},
      {.replicate = 2, .microbatches = 2, .family = Family::mistral, .documents = true, .window = 3},
      {.tp = 2,
       .pp = 2,
       .sequence_parallel = true,
       .microbatches = 3,
       .family = Family::qwen3,
       .tied = true,
       .window = 1},
      {.shard = 2, .pp = 2, .microbatches = 3, .family = Family::mistral, .zero = 3, .window = 5},
      // a window of the whole sequence is none
      {.microbatches = 2, .family = Family::qwen2, .cp = 2, .window = 12},
      {.microbatches = 2, .family = Family::qwen2, .cp = 2, .window = 5, .seq_len = 17},
      {.microbatches = 2, .family = Family::mistral, .cp = 3, .balancer = striped, .window = 4, .seq_len = 23},
      {.microbatches = 2, .family = Family::qwen3, .documents = true, .cp = 4, .balancer = none, .window = 3},
      {.tp = 2,
       .pp = 2,
       .sequence_parallel = true,
       .schedule = PipelineSchedule::zb_v,
       .microbatches = 4,
       .family = Family::qwen2,
       .layers = 6,
       .documents = true,
       .cp = 2,
       .window = 6,
       .seq_len = 19},
      // with the other methods, and with lists that follow documents
      {.microbatches = 2,
       .family = Family::qwen2,
       .cp = 4,
       .window = 5,
       .seq_len = 17,
       .method = ContextMethod::ulysses},
      {.microbatches = 2,
       .family = Family::mistral,
       .cp = 3,
       .window = 4,
       .seq_len = 23,
       .method = ContextMethod::all_gather},
      {.microbatches = 2,
       .family = Family::qwen3,
       .cp = 3,
       .window = 4,
       .seq_len = 23,
       .method = ContextMethod::all_gather,
       .recompute = whole_block},
      {.microbatches = 2,
       .family = Family::qwen2,
       .cp = 4,
       .balancer = none,
       .window = 4,
       .seq_len = 19,
       .method = ContextMethod::ulysses_ring,
       .ulysses = 2},
      {.tp = 2,
       .microbatches = 2,
       .family = Family::mistral,
       .documents = true,
       .cp = 4,
       .balancer = none,
       .window = 4,
       .seq_len = 19,
       .method = ContextMethod::ulysses_ring,
       .ulysses = 2},
      {.microbatches = 2,
       .family = Family::qwen3,
       .documents = true,
       .cp = 3,
       .balancer = LoadBalancer::packed,
       .window = 3,
       .seq_len = 23,
       .positions = true,
       .balance = true},
  };
}

std::vector<Layout> rows() {
  const auto gpipe = PipelineSchedule::gpipe;
  std::vector<Layout> layouts = {
      // a tied embedding with pipeline and sharded optimizer, in each family that ties
      {.shard = 2, .pp = 2, .microbatches = 3, .family = Family::gpt2, .tied = true},
      {.shard = 2,
       .tp = 2,
       .pp = 2,
       .sequence_parallel = true,
       .microbatches = 3,
       .family = Family::qwen2,
       .tied = true},
      {.replicate = 2, .tp = 2, .pp = 2, .schedule = gpipe, .microbatches = 4, .family = Family::qwen3, .tied = true},
      // a data group of one rank with accumulation: gradients must not double from microbatch to microbatch
      {.microbatches = 7},
      {.pp = 3, .microbatches = 7, .layers = 8},
      // one microbatch on many stages; fewer microbatches than stages
      {.pp = 8, .microbatches = 1},
      {.pp = 6, .microbatches = 4, .layers = 13},
      // stages as the user cuts them
      {.shard = 2, .pp = 3, .microbatches = 4, .tied = true, .layers = 7, .layers_per_stage = {1, 5, 1}},
      // embedding and head on stages of their own, which then hold no decoder layer
      {.pp = 4, .microbatches = 3, .tied = true, .layers = 2},
      {.shard = 2, .tp = 2, .pp = 3, .sequence_parallel = true, .microbatches = 3, .family = Family::gpt2, .layers = 1},
      // key/value heads on more ranks than there are heads, with and without sequence parallelism: replicas are summed
      // and counted once
      {.shard = 2, .tp = 4, .microbatches = 3},
      {.tp = 8, .sequence_parallel = true, .microbatches = 2, .family = Family::qwen3},
      {.tp = 8, .microbatches = 2, .family = Family::qwen2, .tied = true},
      // heads, feed-forward width and vocabulary that do not divide
      {.tp = 3, .sequence_parallel = true, .microbatches = 2, .family = Family::gpt2, .tied = true},
      {.tp = 5, .microbatches = 2},
      {.replicate = 2, .tp = 3, .microbatches = 2, .family = Family::gpt2},
      // documents: known on every stage, of every microbatch; with backward in halves, and with parts of a sequence
      // between blocks
      {.replicate = 2, .microbatches = 3, .documents = true},
      {.shard = 2,
       .tp = 2,
       .pp = 2,
       .sequence_parallel = true,
       .microbatches = 3,
       .family = Family::qwen2,
       .tied = true,
       .zero = 3,
       .documents = true},
      {.tp = 4, .pp = 2, .schedule = PipelineSchedule::zb_h1, .microbatches = 4, .documents = true},
      {.pp = 2,
       .schedule = PipelineSchedule::zb_v,
       .microbatches = 4,
       .family = Family::gpt2,
       .tied = true,
       .layers = 5,
       .documents = true},
  };
  for (const std::vector<Layout>& more : {sharded_rows(), order_rows()})
    layouts.insert(layouts.end(), more.begin(), more.end());
  return layouts;
}

std::vector<Layout> expert_rows() {
  using Kind = PipelineSchedule;
  using enum BlockOperation;
  std::vector<Layout> layouts = {
      {.shard = 2, .microbatches = 3, .experts = 4},
      {.replicate = 2, .shard = 2, .family = Family::qwen3, .zero = 2, .experts = 5},
      {.shard = 4, .microbatches = 3, .tied = true, .zero = 3, .experts = 6, .dense_between = true},
      {.tp = 2, .experts = 5},
      {.tp = 4, .sequence_parallel = true, .family = Family::qwen3, .experts = 9},
      {.tp = 4, .sequence_parallel = true, .family = Family::qwen3, .experts = 9, .etp = 4},
      {.replicate = 2, .tp = 3, .sequence_parallel = true, .tied = true, .experts = 3},
      {.shard = 2,
       .tp = 2,
       .sequence_parallel = true,
       .family = Family::qwen2,
       .zero = 3,
       .recompute = whole_block,
       .experts = 12},
      {.tp = 2, .family = Family::qwen2, .experts = 5, .dense_between = true},
      {.pp = 3, .microbatches = 4, .tied = true, .experts = 6, .dense_between = true},
      {.tp = 2,
       .pp = 2,
       .schedule = Kind::zb_h1,
       .microbatches = 5,
       .family = Family::qwen2,
       .recompute = {mlp},
       .experts = 6},
      {.shard = 2,
       .tp = 2,
       .pp = 2,
       .sequence_parallel = true,
       .schedule = Kind::zb_v,
       .microbatches = 4,
       .zero = 2,
       .experts = 7},
      {.shard = 2,
       .pp = 2,
       .schedule = Kind::dualpipe_v,
       .microbatches = 4,
       .tied = true,
       .experts = 5,
       .dense_between = true},
      {.pp = 2, .schedule = Kind::interleaved_one_f_one_b, .virtual_stages = 2, .microbatches = 4, .experts = 16},
      {.tp = 2, .sequence_parallel = true, .documents = true, .cp = 2, .experts = 4, .etp = 2},
      {.shard = 2, .zero = 3, .cp = 3, .seq_len = 17, .experts = 5},
      {.pp = 2,
       .microbatches = 3,
       .family = Family::qwen3,
       .cp = 2,
       .method = ContextMethod::all_gather,
       .recompute = whole_block,
       .experts = 9,
       .dense_between = true},
      {.shard = 2, .window = 5, .experts = 3},
  };
  for (std::size_t i = 1; i < layouts.size(); ++i) layouts[i].router_losses = true;
  return layouts;
}

std::vector<Layout> expert_parallel_rows() {
  using Kind = PipelineSchedule;
  using enum BlockOperation;
  std::vector<Layout> layouts = {
      {.shard = 2, .microbatches = 3, .experts = 4, .ep = 2},
      {.replicate = 2, .shard = 4, .family = Family::qwen3, .zero = 2, .experts = 6, .ep = 2, .bound = 0.3},
      {.shard = 4, .microbatches = 3, .tied = true, .zero = 3, .experts = 8, .dense_between = true, .ep = 4},
      {.shard = 4, .zero = 3, .reshard = ReshardAfterForward::step, .experts = 8, .ep = 2, .bound = 0.5},
      {.shard = 8, .experts = 8, .ep = 8, .bound = 1},
      {.tp = 2, .sequence_parallel = true, .microbatches = 3, .family = Family::qwen2, .experts = 6, .ep = 2},
      {.tp = 4, .sequence_parallel = true, .family = Family::qwen3, .tied = true, .experts = 4, .ep = 2, .bound = 0.1},
      {.shard = 2, .tp = 2, .sequence_parallel = true, .zero = 3, .recompute = whole_block, .experts = 12, .ep = 4},
      {.replicate = 2,
       .shard = 2,
       .tp = 2,
       .pp = 2,
       .sequence_parallel = true,
       .microbatches = 3,
       .zero = 2,
       .experts = 8,
       .ep = 2,
       .bound = 0.4},
      {.shard = 2, .pp = 2, .schedule = Kind::zb_h1, .microbatches = 5, .recompute = {mlp}, .experts = 6, .ep = 2},
      {.shard = 4,
       .pp = 2,
       .schedule = Kind::zb_v,
       .microbatches = 4,
       .family = Family::qwen2,
       .zero = 2,
       .experts = 8,
       .ep = 4,
       .bound = 0.35},
      {.shard = 2,
       .pp = 2,
       .schedule = Kind::dualpipe_v,
       .microbatches = 4,
       .tied = true,
       .experts = 4,
       .dense_between = true,
       .ep = 2},
      {.shard = 2,
       .tp = 2,
       .pp = 2,
       .sequence_parallel = true,
       .schedule = Kind::interleaved_one_f_one_b,
       .virtual_stages = 2,
       .microbatches = 4,
       .experts = 16,
       .ep = 4,
       .bound = 3},
      {.shard = 2, .zero = 3, .documents = true, .cp = 2, .seq_len = 17, .experts = 4, .ep = 4, .bound = 0.6},
      {.tp = 2,
       .sequence_parallel = true,
       .cp = 2,
       .method = ContextMethod::all_gather,
       .recompute = whole_block,
       .experts = 9,
       .dense_between = true,
       .ep = 1},
      {.shard = 2,
       .tp = 2,
       .sequence_parallel = true,
       .schedule = Kind::zb_h1,
       .microbatches = 3,
       .documents = true,
       .cp = 4,
       .balancer = LoadBalancer::none,
       .seq_len = 35,
       .experts = 8,
       .ep = 8,
       .bound = 0.5},
      {.shard = 8, .tp = 2, .sequence_parallel = true, .order = "tp-dp_shard-cp-pp", .experts = 8, .ep = 4},
      {.shard = 2, .window = 5, .recompute = whole_block, .experts = 4, .ep = 2, .bound = 0.2},
      {.shard = 4, .microbatches = 3, .experts = 8, .ep = 4, .ranks_per_node = 2},
      {.shard = 8, .family = Family::qwen3, .zero = 2, .experts = 8, .ep = 8, .bound = 1, .ranks_per_node = 2},
      {.shard = 8, .zero = 3, .experts = 8, .ep = 4, .bound = 0.3, .ranks_per_node = 2},
      {.shard = 2,
       .tp = 2,
       .sequence_parallel = true,
       .zero = 3,
       .recompute = whole_block,
       .experts = 12,
       .ep = 4,
       .ranks_per_node = 2},
      {.shard = 4,
       .pp = 2,
       .schedule = Kind::zb_v,
       .microbatches = 4,
       .family = Family::qwen2,
       .zero = 2,
       .experts = 8,
       .ep = 4,
       .bound = 0.35,
       .ranks_per_node = 2},
      {.shard = 2,
       .tp = 2,
       .sequence_parallel = true,
       .schedule = Kind::zb_h1,
       .microbatches = 3,
       .documents = true,
       .cp = 4,
       .balancer = LoadBalancer::none,
       .seq_len = 35,
       .experts = 16,
       .ep = 8,
       .bound = 0.5,
       .ranks_per_node = 4},
      {.shard = 8,
       .tp = 2,
       .sequence_parallel = true,
       .order = "tp-dp_shard-cp-pp",
       .recompute = {mlp},
       .experts = 8,
       .ep = 4,
       .ranks_per_node = 2},
      {.shard = 2, .microbatches = 3, .experts = 4, .ep = 2, .ranks_per_node = 1},
      {.shard = 8, .family = Family::qwen3, .zero = 2, .experts = 8, .ep = 4, .bound = 1, .ranks_per_node = 1},
      {.shard = 4, .zero = 3, .experts = 8, .ep = 4, .bound = 0.3, .ranks_per_node = 1},
      {.shard = 2,
       .tp = 2,
       .sequence_parallel = true,
       .zero = 3,
       .recompute = whole_block,
       .experts = 12,
       .ep = 4,
       .bound = 0.7,
       .ranks_per_node = 1},
      {.shard = 2,
       .tp = 2,
       .sequence_parallel = true,
       .schedule = Kind::zb_h1,
       .microbatches = 3,
       .documents = true,
       .cp = 2,
       .balancer = LoadBalancer::none,
       .seq_len = 35,
       .experts = 16,
       .ep = 8,
       .bound = 0.5,
       .ranks_per_node = 1},
      {.shard = 4,
       .pp = 2,
       .schedule = Kind::zb_v,
       .microbatches = 4,
       .family = Family::qwen2,
       .zero = 2,
       .experts = 8,
       .ep = 4,
       .bound = 0.35,
       .ranks_per_node = 1},
      {.shard = 4, .microbatches = 3, .experts = 4, .ep = 2, .etp = 2},
      {.shard = 2, .tp = 2, .sequence_parallel = true, .zero = 2, .experts = 8, .ep = 2, .etp = 2, .bound = 0.3},
      {.replicate = 2,
       .shard = 4,
       .tp = 2,
       .sequence_parallel = true,
       .family = Family::qwen3,
       .zero = 3,
       .experts = 6,
       .ep = 2,
       .etp = 2,
       .bound = 1},
      {.shard = 4, .zero = 3, .recompute = whole_block, .experts = 5, .etp = 2},
      {.tp = 4,
       .pp = 2,
       .sequence_parallel = true,
       .schedule = Kind::zb_h1,
       .microbatches = 5,
       .recompute = {mlp},
       .experts = 6,
       .ep = 2,
       .etp = 2,
       .bound = 0.2},
      {.shard = 4,
       .pp = 2,
       .schedule = Kind::dualpipe_v,
       .microbatches = 4,
       .tied = true,
       .experts = 8,
       .dense_between = true,
       .ep = 2,
       .etp = 2},
      {.shard = 2, .zero = 3, .documents = true, .cp = 2, .seq_len = 17, .experts = 4, .ep = 2, .etp = 2, .bound = 0.6},
      {.shard = 4, .tp = 2, .sequence_parallel = true, .order = "tp-dp_shard-cp-pp", .experts = 8, .ep = 2, .etp = 4},
      {.replicate = 2, .tp = 4, .sequence_parallel = true, .zero = 0, .experts = 6, .ep = 2, .etp = 2},
      // Groups with parts of several axes.
      {.shard = 3, .tp = 2, .sequence_parallel = true, .microbatches = 3, .experts = 6, .ep = 3, .bound = 0.6},
      {.shard = 2, .tp = 3, .sequence_parallel = true, .zero = 2, .experts = 4, .ep = 2},
      {.replicate = 2, .shard = 3, .zero = 3, .cp = 2, .experts = 6, .ep = 3, .bound = 0.4},
      {.shard = 3, .tp = 2, .sequence_parallel = true, .zero = 3, .recompute = {mlp}, .experts = 4, .etp = 3},
      {.shard = 4, .tp = 3, .sequence_parallel = true, .order = "dp-tp-pp", .experts = 4, .ep = 2, .etp = 2},
      // All tokens to ranks with features of the same experts.
      {.shard = 4, .microbatches = 3, .experts = 4, .ep = 2, .etp = 2, .ranks_per_node = 1},
      {.shard = 2,
       .tp = 2,
       .sequence_parallel = true,
       .zero = 3,
       .experts = 6,
       .etp = 4,
       .bound = 0.3,
       .ranks_per_node = 1},
      {.shard = 4,
       .pp = 2,
       .schedule = Kind::zb_v,
       .microbatches = 4,
       .zero = 2,
       .documents = true,
       .recompute = {mlp},
       .experts = 8,
       .ep = 2,
       .etp = 2,
       .bound = 0.4,
       .ranks_per_node = 1},
  };
  for (std::size_t i = 1; i < layouts.size(); ++i) layouts[i].router_losses = true;
  return layouts;
}

std::vector<Layout> capacity_rows() {
  std::vector<Layout> layouts = expert_rows();
  for (const Layout& layout : expert_parallel_rows()) layouts.push_back(layout);
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    layouts[i].bound = Layout().bound;
    layouts[i].capacity = 0.5 + 0.3 * static_cast<double>(i % 3);
    layouts[i].drops_by_score = i % 2 == 0;
  }
  return layouts;
}

}  // namespace echelon::testing
