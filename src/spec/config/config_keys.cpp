#include "spec/config/config_keys.h"

#include "base/error.h"
#include "spec/config/run_formats.h"
#include "spec/families/family.h"
#include "spec/model_mechanisms.h"

#include <algorithm>

namespace echelon {
namespace {

template <auto section, auto member>
auto& at(RunConfig& config) {
  return config.*section.*member;
}

template <class Choice>
void parse(std::string_view key, std::string_view name, const RunConfig& /*config*/, Choice& choice) {
  choice = parse_exactly<Choice>(key, name);
}
template <class Choice>
void parse(std::string_view key, std::string_view name, const RunConfig& /*config*/, std::optional<Choice>& choice) {
  choice = name.empty() ? std::nullopt : std::optional(parse_exactly<Choice>(key, name));
}
void parse(std::string_view key, std::string_view name, const RunConfig& /*config*/, DType& dtype) {
  dtype = parse_training_dtype(key, name);
}
void parse(std::string_view key, std::string_view name, const RunConfig& config, std::optional<DType>& dtype) {
  dtype = parse_format(key, name, config.training.dtype);
}

template <auto section, auto member>
constexpr ChoiceField choice = {
    .name = [](const RunConfig& config) { return name_of(config.*section.*member); },
    .parse = [](std::string_view key, std::string_view name,
                RunConfig& config) { parse(key, name, config, config.*section.*member); },
};

template <auto member>
auto& scaling(RunConfig& config) {
  if (!config.model.rope_scaling) config.model.rope_scaling.emplace();
  return *config.model.rope_scaling.*member;
}

constexpr TextField mechanisms = {
    .text = [](const RunConfig& config) { return mechanisms_of(config.model); },
    .parse = [](std::string_view key, std::string_view text,
                RunConfig& config) { set_mechanisms(key, text, config.model); },
};

template <auto member>
auto& mixture(RunConfig& config) {
  return config.model.mixture.*member;
}

bool has_experts(const ModelSpec& m) { return description_of(m.family).mixture.has_value(); }
bool has_dense_layers(const ModelSpec& m) {
  return has_experts(m) && description_of(m.family).mixture->has_dense_layers;
}
bool is_of_deepseek(const ModelSpec& m) { return has_experts(m) && description_of(m.family).mixture->is_of_deepseek; }
bool has_shared_expert(const ModelSpec& m) { return is_of_deepseek(m) || m.mixture.gates_shared_expert; }
bool may_normalise(const ModelSpec& m) { return has_experts(m) && !description_of(m.family).mixture->normalises; }
bool has_rms_norm(const ModelSpec& m) { return m.norm == NormKind::rms_norm; }
bool has_layer_norm(const ModelSpec& m) { return m.norm == NormKind::layer_norm; }
bool has_rope(const ModelSpec& m) { return m.position == PositionKind::rope; }

constexpr ValueRange size = {1, 2147483647};  // counts and lengths: a product of two of them fits in int64
constexpr ValueRange count_or_none = {0, 9007199254740992};
constexpr ValueRange degree = {1, 1 << 20};
constexpr ValueRange padding = {0, 1 << 16};
constexpr ValueRange unit = {0, 1};
constexpr ValueRange not_negative = {0};
constexpr ValueRange below_one = {0, 0.999999};

constexpr auto model = &RunConfig::model;
constexpr auto data = &RunConfig::data;
constexpr auto training = &RunConfig::training;
constexpr auto parallelism = &RunConfig::parallelism;
constexpr auto moe = &RunConfig::moe;
constexpr auto lora = &RunConfig::lora;
constexpr auto optimizer = &RunConfig::optimizer;
constexpr auto lr_scheduler = &RunConfig::lr_scheduler;
constexpr auto grad_scaler = &RunConfig::grad_scaler;
constexpr auto checkpoint = &RunConfig::checkpoint;
using M = ModelSpec;
using T = TrainingConfig;
using P = ParallelConfig;
using O = OptimizerConfig;
using L = LrSchedulerConfig;
using G = GradScalerConfig;
using C = CheckpointConfig;
using S = RopeScaling;
using X = MixtureSpec;
using E = MoeConfig;
using A = LoraConfig;

// clang-format off
const ConfigKey keys[] = {
    {"model.preset", ModelBase{}, "a model by name, such as llama-10m, gpt2-124m, llama3.1-8b or qwen3-8b; a wrong name lists all"},
    {"model.path", ModelBase{}, "or a Hugging Face folder whose config.json is read"},
    {"model.model_type", at<model, &M::family>, "or a family with the sizes below: gpt2 | llama | qwen2 | qwen3 | mistral | mixtral | qwen3_moe | dots1 | qwen2_moe | phi3 | starcoder2 | smollm3 | ministral3 | olmo2 | olmo3 | olmoe | granite | gemma2 | gemma3_text | gpt_neox | deepseek_v2 | deepseek_v3"},
    {"model.mechanisms", mechanisms, "choices other than model_type's, such as 'mlp=geglu kv_lora_rank=512'"},
    {"model.hidden_size", at<model, &M::hidden_size>, "width D of the residual stream", size},
    {"model.num_hidden_layers", at<model, &M::num_hidden_layers>, "decoder blocks", size},
    {"model.num_attention_heads", at<model, &M::num_attention_heads>, "query heads", size},
    {"model.num_key_value_heads", at<model, &M::num_key_value_heads>, "key/value heads; default: as many as query heads", size},
    {"model.head_dim", at<model, &M::head_dim>, "width of a head; default: hidden_size / num_attention_heads", size},
    {"model.intermediate_size", at<model, &M::intermediate_size>, "width of the feed-forward layer; default for gpt2: 4 hidden_size", size},
    {"model.vocab_size", at<model, &M::vocab_size>, "tokens of the vocabulary", size},
    {"model.max_position_embeddings", at<model, &M::max_position_embeddings>, "the longest sequence", size},
    {"model.rms_norm_eps", at<model, &M::norm_eps>, "epsilon of RMSNorm", unit, has_rms_norm},
    {"model.layer_norm_epsilon", at<model, &M::norm_eps>, "epsilon of LayerNorm", unit, has_layer_norm},
    {"model.rope_theta", at<model, &M::rope_theta>, "base of the rotary frequencies", {1}, has_rope},
    {"model.rope_scaling.rope_type", ModelBase{}, "llama3 | default (no scaling)", {}, has_rope},
    {"model.rope_scaling.factor", scaling<&S::factor>, "Llama-3's scaling of low frequencies", {1}, has_rope},
    {"model.rope_scaling.low_freq_factor", scaling<&S::low_freq_factor>, "where its transition starts", {0}, has_rope},
    {"model.rope_scaling.high_freq_factor", scaling<&S::high_freq_factor>, "where its transition ends", {0}, has_rope},
    {"model.rope_scaling.original_max_position_embeddings", scaling<&S::original_max_position_embeddings>, "positions before scaling", size, has_rope},
    {"model.sliding_window", at<model, &M::sliding_window>, "keys that a query sees; 0: all before it", count_or_none},
    {"model.max_window_layers", at<model, &M::max_window_layers>, "the first layer with sliding_window", count_or_none},
    {"model.num_experts", mixture<&X::num_experts>, "experts of a layer, in models that have them", count_or_none, has_experts},
    {"model.num_experts_per_tok", mixture<&X::num_experts_per_tok>, "experts of a token", size, has_experts},
    {"model.moe_intermediate_size", mixture<&X::moe_intermediate_size>, "width of an expert; default for mixtral and olmoe: intermediate_size", size, has_experts},
    {"model.norm_topk_prob", mixture<&X::norm_topk_prob>, "the weights of a token's experts add up to 1", {}, may_normalise},
    {"model.decoder_sparse_step", mixture<&X::decoder_sparse_step>, "every so many layers, one has experts", size, has_dense_layers},
    {"model.first_k_dense_replace", mixture<&X::first_k_dense_replace>, "layers without experts, at the start", count_or_none, is_of_deepseek},
    {"model.n_group", mixture<&X::n_group>, "groups of experts", size, is_of_deepseek},
    {"model.topk_group", mixture<&X::topk_group>, "groups in which a token's experts are", size, is_of_deepseek},
    {"model.routed_scaling_factor", mixture<&X::routed_scaling_factor>, "factor of the weights of experts", not_negative, is_of_deepseek},
    {"model.shared_expert_intermediate_size", mixture<&X::shared_expert_intermediate_size>, "width of the expert of all tokens; for dots1 a multiple of moe_intermediate_size", count_or_none, has_shared_expert},
    {"model.mlp_only_layers", mixture<&X::mlp_only_layers>, "layers without experts", {}, has_dense_layers},
    {"model.initializer_range", at<model, &M::initializer_range>, "standard deviation of initial weights", not_negative},
    {"model.tie_word_embeddings", at<model, &M::tie_word_embeddings>, "the head shares the embedding's weight"},

    {"data.path", at<data, &DataConfig::path>, "prefix of the training tokens' .bin and .idx"},
    {"data.validation_path", at<data, &DataConfig::validation_path>, "prefix of the validation tokens; empty: no evaluation"},
    {"data.seed", at<data, &DataConfig::seed>, "seed of the order of the data"},
    {"data.reset_attention_mask", at<data, &DataConfig::reset_attention_mask>, "a token attends only to tokens of its own document, as the .idx file gives them"},
    {"data.reset_position_ids", at<data, &DataConfig::reset_position_ids>, "positions restart at every document"},
    {"data.eod_mask_loss", at<data, &DataConfig::eod_mask_loss>, "the last token of a document has no target"},
    {"data.packing", choice<data, &DataConfig::packing>, "stream | best_fit: whole documents into sequences, so that few are split"},
    {"data.balance_batch", at<data, &DataConfig::balance_batch>, "distributes the sequences of a batch by their pairs (query, key)"},
    {"data.split", NotYet{}, "parts of one dataset for training and validation"},

    {"training.steps", at<training, &T::steps>, "optimizer steps", size},
    {"training.seq_len", at<training, &T::seq_len>, "tokens per sequence", size},
    {"training.global_batch_size", at<training, &T::global_batch_size>, "sequences per step, over all ranks", size},
    {"training.micro_batch_size", at<training, &T::micro_batch_size>, "sequences per microbatch of a rank", size},
    {"training.dtype", choice<training, &T::dtype>, "parameters and activations: float32 | bfloat16 | float16 | float64"},
    {"training.linear_dtype", choice<training, &T::linear_dtype>, "format of the matmuls of linear layers; empty: dtype; float8: operands rounded to 8 bits with a scale per tensor"},
    {"training.logits_dtype", choice<training, &T::logits_dtype>, "the head's logits: float32, or dtype, whose memory the gradients reuse; empty: dtype on GPUs, float32 on CPUs"},
    {"training.head_chunk_tokens", at<training, &T::head_chunk_tokens>, "tokens whose logits exist at a time; 0: up to 2,048 and 256 MiB on CPUs, up to 512 MiB on GPUs", count_or_none},
    {"training.mlp_chunk_tokens", at<training, &T::mlp_chunk_tokens>, "tokens in the feed-forward branch at a time, with recompute = mlp; 0: all", count_or_none},
    {"training.make_vocab_size_divisible_by", at<training, &T::make_vocab_size_divisible_by>,
     "rows of the embedding and the head on each rank, by padding; 0: 1 on CPUs, 128 on GPUs", padding},
    {"training.grad_dtype", choice<training, &T::grad_dtype>, "gradients; empty: float64 for float64, else float32"},
    {"training.reduce_dtype", choice<training, &T::reduce_dtype>, "reduction of gradients; empty: grad_dtype"},
    {"training.float32_matmul_precision", choice<training, &T::float32_matmul_precision>, "float32 matmuls on GPUs: highest: in float32 | high: operands rounded to TensorFloat-32"},
    {"training.max_norm", at<training, &T::max_norm>, "clip gradients to this global norm; 0: no clipping", not_negative},
    {"training.seed", at<training, &T::seed>, "seed of the initial weights"},
    {"training.deterministic", at<training, &T::deterministic>, "the same bits in every run"},
    {"training.eval_interval", at<training, &T::eval_interval>, "steps between evaluations; 0: at the end only", count_or_none},
    {"training.eval_batches", at<training, &T::eval_batches>, "global batches per evaluation", size},
    {"training.recompute", at<training, &T::recompute>, "what backward recomputes: none | selective | full | a list of qkv_proj, qk_norm, core_attn, o_proj, mlp, router, experts, shared_expert"},
    {"training.recompute_method", at<training, &T::recompute_method>, "uniform: in every block | block: in the first recompute_num_layers of each pipeline stage"},
    {"training.recompute_num_layers", at<training, &T::recompute_num_layers>, "block: layers per stage; uniform: layers per group, 1 so far", size},
    {"training.device", choice<training, &T::device>, "cpu | cuda: NVIDIA GPUs | auto: cuda where there is one"},
    {"training.cuda_graphs", at<training, &T::cuda_graphs>, "GPUs: the work of a step is recorded as a CUDA graph and replayed in the steps after it"},
    {"training.attention", choice<training, &T::attention>, "GPUs: cudnn, or an error | own: our kernels | auto: cudnn where it has a plan"},
    {"training.num_threads", at<training, &T::num_threads>, "threads of each rank; 0: OMP_NUM_THREADS, or its share of the cores", {0, 4096}},

    {"parallelism.data_parallel_replicate_degree", at<parallelism, &P::data_parallel_replicate_degree>, "replicas of the sharded model", degree},
    {"parallelism.data_parallel_shard_degree", at<parallelism, &P::data_parallel_shard_degree>, "ranks that share optimizer states (ZeRO)", degree},
    {"parallelism.zero_level", at<parallelism, &P::zero_level>, "what is sharded, 1: optimizer states, 2: gradients too, 3: parameters too", {0, 3}},
    {"parallelism.reshard_after_forward", at<parallelism, &P::reshard_after_forward>, "of gathered parameters (ZeRO-3): never | microbatch (always) | step"},
    {"parallelism.prefetch_depth", at<parallelism, &P::prefetch_depth>, "units gathered ahead of the one that computes (ZeRO-3)", size},
    {"parallelism.tensor_parallel_degree", at<parallelism, &P::tensor_parallel_degree>, "ranks that split each layer", degree},
    {"parallelism.sequence_parallel", at<parallelism, &P::sequence_parallel>, "norms and residuals split over the tensor-parallel ranks"},
    {"parallelism.pipeline_parallel_degree", at<parallelism, &P::pipeline_parallel_degree>, "pipeline stages", degree},
    {"parallelism.pipeline_parallel_schedule", at<parallelism, &P::pipeline_parallel_schedule>, "naive | GPipe | 1F1B | Interleaved1F1B | LoopedBFS | InterleavedZeroBubble | ZB-H1 | ZB-H2 | ZB-1p | ZB-2p | ZB-V | DualPipeV"},
    {"parallelism.pipeline_parallel_schedule_csv", at<parallelism, &P::pipeline_parallel_schedule_csv>, "file of a schedule in PyTorch's format, instead of a named one"},
    {"parallelism.pipeline_parallel_layout", at<parallelism, &P::pipeline_parallel_layout>, "layers per stage, embedding and head too, e.g. [4, 6], or Megatron's 'Ettt|tttttL'; empty: even"},
    {"parallelism.virtual_stages", at<parallelism, &P::virtual_stages>, "pipeline stages per rank; 0: as the layout says, or 2 where a schedule has several", {0, 4096}},
    {"parallelism.pipeline_forward_ms", at<parallelism, &P::pipeline_forward_ms>, "for ZB-1p and ZB-2p: time of a forward pass of one microbatch on one rank", not_negative},
    {"parallelism.pipeline_backward_input_ms", at<parallelism, &P::pipeline_backward_input_ms>, "likewise, the gradient of the input", not_negative},
    {"parallelism.pipeline_backward_weight_ms", at<parallelism, &P::pipeline_backward_weight_ms>, "likewise, the gradients of the weights", not_negative},
    {"parallelism.pipeline_p2p_ms", at<parallelism, &P::pipeline_p2p_ms>, "likewise, a message between two stages", not_negative},
    {"parallelism.pipeline_memory_limit", at<parallelism, &P::pipeline_memory_limit>, "microbatches in flight on a rank at most; 0: p for ZB-1p, 2p for ZB-2p, none for others", not_negative},
    {"parallelism.context_parallel_degree", at<parallelism, &P::context_parallel_degree>, "ranks that hold different tokens of the same sequences", degree},
    {"parallelism.context_parallel_method", choice<parallelism, &P::context_parallel_method>, "ring (p2p): keys go from rank to rank | all_gather | ulysses (a2a): exchanges tokens for heads | ulysses_ring (a2a+p2p)"},
    {"parallelism.context_parallel_ulysses_degree", at<parallelism, &P::context_parallel_ulysses_degree>, "ulysses_ring: neighbours that exchange heads", {0, 1 << 20}},
    {"parallelism.hierarchical_context_parallel_sizes", at<parallelism, &P::hierarchical_context_parallel_sizes>, "Megatron's form: [ulysses degree, ring]"},
    {"parallelism.context_parallel_load_balancer", choice<parallelism, &P::context_parallel_load_balancer>, "tokens of a rank: headtail: two chunks, the r-th and the r-th from the end | none: one chunk | striped: every cp-th token | per_document: headtail in each document | packed: even pairs (query, key)"},
    {"parallelism.expert_parallel_degree", at<parallelism, &P::expert_parallel_degree>, "ranks that have the experts of a layer together: neighbours among the dp_shard, cp and tp ranks", degree},
    {"parallelism.expert_tensor_parallel_degree", at<parallelism, &P::expert_tensor_parallel_degree>, "ranks that split each expert; 0: tensor_parallel_degree, or 1 with sequence_parallel", {0, 1 << 20}},
    {"parallelism.expert_dispatch", choice<parallelism, &P::expert_dispatch>, "rows to experts on other ranks: direct | hierarchical: a token crosses to a node once | all_gather: all tokens to all ranks | auto: hierarchical where hosts or ranks_per_node allow it"},
    {"parallelism.ranks_per_node", at<parallelism, &P::ranks_per_node>, "ranks in a row that share a node, for expert_dispatch; 0: by the hosts of an MPI job", {0, 1 << 20}},
    {"parallelism.order", at<parallelism, &P::order>, "axes from the innermost, in which neighbouring ranks differ: Megatron's 'tp-cp-dp-pp', or a list; dp_shard and dp_replicate may be apart"},

    {"moe.seq_aux_loss_coeff", at<moe, &E::seq_aux_loss_coeff>, "loss that evens out the experts' loads in each sequence", not_negative},
    {"moe.global_aux_loss_coeff", at<moe, &E::global_aux_loss_coeff>, "the same over all tokens of a step, with the loads of the step before", not_negative},
    {"moe.z_loss_coeff", at<moe, &E::z_loss_coeff>, "loss that keeps the router's logits small", not_negative},
    {"moe.dispatch_bound", at<moe, &E::dispatch_bound>, "expert parallelism: rows that a rank takes in one round of an exchange, of those that it sends; more go in further rounds", {0.001, 1e6}},
    {"moe.capacity_factor", at<moe, &E::capacity_factor>, "rows of a sequence that an expert takes in training, of its share of even loads; others are dropped", {0.001, 1e6}},
    {"moe.capacity_order", choice<moe, &E::capacity_order>, "which rows come first: position | score: larger weights, which is not causal"},
    {"moe.freeze_router", at<moe, &E::freeze_router>, "routers keep their weights and biases"},
    {"moe.force_balance", at<moe, &E::force_balance>, "tokens take experts in turn, whatever routers say: for benchmarks"},
    {"moe.bias_update_rate", at<moe, &E::bias_update_rate>, "step of the bias of the choice towards even loads (DeepSeek-V3), where the family has one", not_negative},

    {"lora.rank", at<lora, &A::rank>, "rank of low-rank adapters; 0: none, and all weights are trained", {0, 1 << 16}},
    {"lora.alpha", at<lora, &A::alpha>, "scale of adapters: alpha / rank", {0.001, 1e9}},
    {"lora.dropout", at<lora, &A::dropout>, "0 only: there is no dropout", {0, 0}},
    {"lora.target_modules", at<lora, &A::target_modules>, "linear layers with adapters: all-linear (but routed experts and gates) | a list of the files' names, such as q_proj,v_proj"},
    {"lora.use_rslora", at<lora, &A::use_rslora>, "the scale is alpha / sqrt(rank)"},
    {"lora.initial_load_path", at<lora, &A::initial_load_path>, "PEFT's folder of the first adapters; empty: drawn"},
    {"lora.modules_to_save", at<lora, &A::modules_to_save>, "modules that are trained whole: ends of names, such as lm_head,norm"},

    {"optimizer.name", choice<optimizer, &O::name>, "adamw"},
    {"optimizer.lr", at<optimizer, &O::lr>, "peak learning rate", not_negative},
    {"optimizer.beta1", at<optimizer, &O::beta1>, "decay of the first moment", below_one},
    {"optimizer.beta2", at<optimizer, &O::beta2>, "decay of the second moment", below_one},
    {"optimizer.eps", at<optimizer, &O::eps>, "added to the root of the second moment", {1e-30, 1e30}},
    {"optimizer.weight_decay", at<optimizer, &O::weight_decay>, "of matrices; norms and biases have none", {0, 1e6}},
    {"optimizer.moments_dtype", choice<optimizer, &O::moments_dtype>, "AdamW's moments: float32 | bfloat16: rounded stochastically; empty: float64 for float64, else float32"},
    {"optimizer.store_param_remainders", at<optimizer, &O::store_param_remainders>, "bfloat16: store only the bits of the master weight that the parameter lacks, 2 bytes instead of 4"},

    {"lr_scheduler.warmup_steps", at<lr_scheduler, &L::warmup_steps>, "steps of linear warm-up", count_or_none},
    {"lr_scheduler.decay", at<lr_scheduler, &L::decay>, "none | cosine | linear | wsd"},
    {"lr_scheduler.min_lr_factor", at<lr_scheduler, &L::min_lr_factor>, "the least learning rate as a part of lr", unit},
    {"lr_scheduler.decay_ratio", at<lr_scheduler, &L::decay_ratio>, "wsd: the last part of the steps, in which lr falls", unit},

    {"grad_scaler.init_scale", at<grad_scaler, &G::init_scale>, "float16: initial factor of the loss", {1, 1e30}},
    {"grad_scaler.growth_factor", at<grad_scaler, &G::growth_factor>, "factor of the scale after growth_interval steps without overflow", {1.001, 1e6}},
    {"grad_scaler.backoff_factor", at<grad_scaler, &G::backoff_factor>, "factor of the scale when gradients overflow and the step is skipped", {1e-6, 0.999}},
    {"grad_scaler.growth_interval", at<grad_scaler, &G::growth_interval>, "steps without overflow after which the scale grows", size},

    {"checkpoint.enable", at<checkpoint, &C::enable>, "write the model"},
    {"checkpoint.folder", at<checkpoint, &C::folder>, "below output.dir: step-N/, from which training resumes"},
    {"checkpoint.interval", at<checkpoint, &C::interval>, "steps between checkpoints; one more is written at the end", size},
    {"checkpoint.keep_latest_k", at<checkpoint, &C::keep_latest_k>, "older ones are removed; 0: keep all", count_or_none},
    {"checkpoint.keep_every", at<checkpoint, &C::keep_every>, "checkpoints of multiples of this many steps are never removed; 0: none", count_or_none},
    {"checkpoint.export_interval", at<checkpoint, &C::export_interval>, "steps between models in output.dir/export/step-N, in Hugging Face's layout; 0: one at the end, in output.dir/model", count_or_none},
    {"checkpoint.async_mode", choice<checkpoint, &C::async_mode>, "disabled: training waits for each checkpoint | async: it continues while a copy is written | async_with_pinned_mem: the same, with a GPU's state in pinned memory"},
    {"checkpoint.snapshot_bytes", at<checkpoint, &C::snapshot_bytes>, "of that copy on each rank at most; the rest is written in place, and its update waits; -1: no limit", {-1}},
    {"checkpoint.timeout_seconds", at<checkpoint, &C::timeout_seconds>, "a checkpoint that takes longer has failed", {0.001, 1e9}},
    {"checkpoint.load", at<checkpoint, &C::load>, "auto: resume the same run, or start | none: start, in a folder without checkpoints | latest: resume, also with other values | a step, or a step's folder"},
    {"checkpoint.exclude_from_loading", at<checkpoint, &C::exclude_from_loading>, "what starts afresh: a list of optimizer, lr_scheduler, dataloader"},
    {"checkpoint.initial_load_path", at<checkpoint, &C::initial_load_path>, "Hugging Face folder, or a step's folder, of the initial weights"},
    {"checkpoint.text_only", at<checkpoint, &C::text_only>, "of a model of images and text, saved models are the language model alone"},
    {"checkpoint.tokenizer", at<checkpoint, &C::tokenizer>, "tokenizer.json that is copied next to the weights"},

    {"metrics.log_freq", at<&RunConfig::metrics, &MetricsConfig::log_freq>, "steps between log lines", size},
    {"metrics.tensorboard", NotYet{}, "event files"},
    {"metrics.trace", at<&RunConfig::metrics, &MetricsConfig::trace>, "steps whose timeline is written to output.dir/trace, e.g. 'steps 3-5'"},
    {"metrics.expert_loads", at<&RunConfig::metrics, &MetricsConfig::expert_loads>, "metrics.jsonl has the rows of each expert, for plan and simulate --expert-load"},
    {"metrics.machine", at<&RunConfig::metrics, &MetricsConfig::machine>, "a file of echelon bench: the peaks for mfu and for the table of a trace"},

    {"comm.backend", choice<&RunConfig::comm, &CommConfig::backend>, "thread: ranks are threads of this process | mpi: a process each | nccl: a GPU each, of either | auto: mpi under mpirun or srun, nccl on GPUs"},
    {"comm.timeout_seconds", at<&RunConfig::comm, &CommConfig::timeout_seconds>, "a rank that waits longer ends the run", {0.001, 1e9}},
    {"comm.bind", choice<&RunConfig::comm, &CommConfig::bind>, "auto: ranks are bound to their shares of the cores | none"},

    {"output.dir", at<&RunConfig::output, &OutputConfig::dir>, "metrics.jsonl and checkpoints are written here"},
};
// clang-format on

}  // namespace

std::span<const ConfigKey> config_keys() { return keys; }

bool is_there(const ConfigKey& key) { return !std::holds_alternative<NotYet>(key.field); }

bool has_value(const ConfigKey& key) { return is_there(key) && !std::holds_alternative<ModelBase>(key.field); }

bool takes_text(const ConfigKey& key) {
  return std::holds_alternative<FieldOf<std::string>>(key.field) || std::holds_alternative<ChoiceField>(key.field) ||
         std::holds_alternative<TextField>(key.field);
}

bool takes_integers(const ConfigKey& key) {
  return std::holds_alternative<FieldOf<PipelineLayout>>(key.field) ||
         std::holds_alternative<FieldOf<std::vector<std::int64_t>>>(key.field);
}

bool takes_names(const ConfigKey& key) {
  return std::holds_alternative<FieldOf<BlockOperations>>(key.field) ||
         std::holds_alternative<FieldOf<LoadExclusions>>(key.field) ||
         std::holds_alternative<FieldOf<std::vector<std::string>>>(key.field) ||
         std::holds_alternative<FieldOf<AxisOrder>>(key.field);
}

const ConfigKey* find_config_key(std::string_view name) {
  const auto found =
      std::find_if(std::begin(keys), std::end(keys), [&](const ConfigKey& key) { return key.name == name; });
  return found == std::end(keys) ? nullptr : found;
}

std::string closest_config_key(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ConfigKey& key : keys)
    if (is_there(key)) names.push_back(key.name);
  return closest_name(name, names);
}

std::string_view section_of(const ConfigKey& key) { return key.name.substr(0, key.name.find('.')); }

std::vector<std::string_view> config_sections() {
  std::vector<std::string_view> sections;
  for (const ConfigKey& key : keys)
    if (sections.empty() || sections.back() != section_of(key)) sections.push_back(section_of(key));
  return sections;
}

}  // namespace echelon
