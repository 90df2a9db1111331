// All settings of a run, as plain values. The field names are the keys in TOML and on the command line: [section] key,
// --section.key=value.
#pragma once

#include "schedule/generators/catalog.h"
#include "spec/config/expert_load.h"
#include "spec/config/run_choices.h"
#include "spec/lora/lora.h"
#include "spec/mesh_shape.h"
#include "spec/model_spec.h"
#include "spec/recompute.h"
#include "spec/stage_layout.h"
#include "tensor/dtype.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace echelon {

struct DataConfig {
  std::string path;             // prefix of .bin/.idx
  std::string validation_path;  // the same for validation; empty: no evaluation
  std::int64_t seed = 0;
  bool reset_attention_mask = false;  // a token attends only to its own document
  bool reset_position_ids = false;    // positions restart at each document
  bool eod_mask_loss = false;         // the last token of a document has no target
  bool balance_batch = false;         // sequences go to ranks and microbatches by their pairs (query, key)
  Packing packing = Packing::stream;
  bool operator==(const DataConfig&) const = default;
};

struct TrainingConfig {
  std::int64_t steps = 100;
  std::int64_t seq_len = 256;
  std::int64_t global_batch_size = 8;  // sequences per step, over all ranks
  std::int64_t micro_batch_size = 1;   // sequences per rank and microbatch
  DType dtype = DType::float32;        // of parameters and activations: float32 | bfloat16 | float16 | float64
  // Format of the linear layers' operands. Empty: dtype.
  std::optional<LinearDType> linear_dtype;
  // Format of the head's logits: float32 (float64 for float64) or dtype. Empty: dtype on GPUs, else float32.
  std::optional<DType> logits_dtype;
  std::int64_t head_chunk_tokens = 0;  // tokens whose logits exist at a time; 0: device default
  std::int64_t mlp_chunk_tokens = 0;   // tokens that the feed-forward branch computes at a time; 0: all
  // Rows per rank of the embedding and the head are padded to a multiple of this. 0: device default.
  std::int64_t make_vocab_size_divisible_by = 0;
  std::optional<DType> grad_dtype;    // empty: float64 for float64, else float32
  std::optional<DType> reduce_dtype;  // empty: grad_dtype
  // Format of float32 matmuls on GPUs: float32 or TensorFloat-32.
  MatmulPrecision float32_matmul_precision = MatmulPrecision::highest;
  double max_norm = 1.0;  // 0: no clipping
  std::int64_t seed = 1;
  bool deterministic = true;
  std::int64_t eval_interval = 0;  // steps between evaluations; 0: at the end only
  std::int64_t eval_batches = 8;   // global batches per evaluation
  BlockOperations recompute = {};  // what blocks recompute in backward
  RecomputeMethod recompute_method = RecomputeMethod::uniform;
  std::int64_t recompute_num_layers = 1;  // uniform: per group; block: per stage
  std::int64_t num_threads = 0;           // per rank; 0: its share of the cores
  DeviceChoice device = DeviceChoice::automatic;
  bool cuda_graphs = false;                                  // a step is recorded once and replayed
  AttentionKernels attention = AttentionKernels::automatic;  // on GPUs
  bool operator==(const TrainingConfig&) const = default;
};

struct ParallelConfig {
  std::int64_t data_parallel_replicate_degree = 1;
  std::int64_t data_parallel_shard_degree = 1;
  // What is sharded over the shard axis: 1 optimizer states, 2 gradients too, 3 parameters too.
  std::int64_t zero_level = 1;
  ReshardAfterForward reshard_after_forward = ReshardAfterForward::microbatch;
  std::int64_t prefetch_depth = 1;  // passes of units before the one that needs a gathered unit (zero_level 3)
  std::int64_t tensor_parallel_degree = 1;
  bool sequence_parallel = false;
  std::int64_t pipeline_parallel_degree = 1;
  PipelineSchedule pipeline_parallel_schedule = PipelineSchedule::one_f_one_b;
  std::string pipeline_parallel_schedule_csv;  // a schedule in PyTorch's format, instead of a named one
  // Pipeline stages per rank; 0: as many as the layout or the schedule has.
  std::int64_t virtual_stages = 0;
  PipelineLayout pipeline_parallel_layout;  // empty: even
  // Relative times of one microbatch on one rank, for the search of ZB-1p and ZB-2p.
  double pipeline_forward_ms = 1;
  double pipeline_backward_input_ms = 1;
  double pipeline_backward_weight_ms = 1;
  double pipeline_p2p_ms = 0;
  // In microbatches of one rank's activations; 0: p for ZB-1p, 2p for ZB-2p, none for others.
  double pipeline_memory_limit = 0;
  std::int64_t context_parallel_degree = 1;
  ContextMethod context_parallel_method = ContextMethod::ring;
  std::int64_t context_parallel_ulysses_degree = 0;  // u of ulysses_ring; 0: not given
  // Megatron's, of ulysses_ring: u and the number of groups of u ranks. Empty: not given.
  std::vector<std::int64_t> hierarchical_context_parallel_sizes;
  LoadBalancer context_parallel_load_balancer = LoadBalancer::headtail;
  std::int64_t expert_parallel_degree = 1;
  std::int64_t expert_tensor_parallel_degree = 0;  // 0: tensor_parallel_degree, or 1 with sequence parallelism
  ExpertDispatch expert_dispatch = ExpertDispatch::automatic;
  std::int64_t ranks_per_node = 0;  // for expert_dispatch; 0: not known
  AxisOrder order;                  // of the mesh's axes over the ranks
  bool operator==(const ParallelConfig&) const = default;
};

/// What keeps the experts of a mixture loaded evenly (ops/operations/mixture/balance.h; 0: off), and how many rows they
/// take.
struct MoeConfig {
  double seq_aux_loss_coeff = 0;     // of the loss of each sequence
  double global_aux_loss_coeff = 0;  // of that of all tokens, with the loads of the step before
  double z_loss_coeff = 0;
  double bias_update_rate = 0;
  bool freeze_router = false;
  bool force_balance = false;   // tokens take experts in turn: for benchmarks
  double dispatch_bound = 1.2;  // rows that a rank takes in one round, of its share of even loads
  // An expert takes ceil(capacity_factor k T / E) rows of a sequence: all T of them from E / k on.
  double capacity_factor = 1e6;
  CapacityOrder capacity_order = CapacityOrder::position;
  bool operator==(const MoeConfig&) const = default;
};
/// Rows of a sequence of `seq_len` tokens that an expert takes; 0: all.
[[nodiscard]] std::int64_t expert_capacity(const MoeConfig& moe, const MixtureSpec& mixture, std::int64_t seq_len);
[[nodiscard]] constexpr bool has_router_losses(const MoeConfig& moe) {
  return moe.seq_aux_loss_coeff != 0 || moe.global_aux_loss_coeff != 0 || moe.z_loss_coeff != 0;
}

struct OptimizerConfig {
  OptimizerKind name = OptimizerKind::adamw;
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::optional<DType> moments_dtype;  // empty: float64 for float64, else float32; bfloat16: rounded at random
  // With bfloat16 parameters: store only the 2 bytes of float32 master weights that the parameters lack.
  bool store_param_remainders = false;
  bool operator==(const OptimizerConfig&) const = default;
};

/// Used with training.dtype = float16; see engine/loss_scaler.h.
struct GradScalerConfig {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;
  bool operator==(const GradScalerConfig&) const = default;
};

struct LrSchedulerConfig {
  std::int64_t warmup_steps = 0;
  LrDecay decay = LrDecay::cosine;
  double min_lr_factor = 0.0;
  double decay_ratio = 0.2;  // wsd: fraction of the steps, at the end, in which lr decays linearly
  bool operator==(const LrSchedulerConfig&) const = default;
};

struct CheckpointConfig {
  bool enable = true;
  std::string folder = "checkpoint";  // below output.dir: step-N/
  std::int64_t interval = 500;        // steps; one more is written at the end
  std::int64_t keep_latest_k = 2;
  std::int64_t keep_every = 0;       // steps whose multiples stay; 0: none
  std::int64_t export_interval = 0;  // steps between models in export/step-N/; 0: none
  AsyncMode async_mode = AsyncMode::disabled;
  std::int64_t snapshot_bytes = -1;  // of a rank, at most; -1: its part of a checkpoint
  double timeout_seconds = 1800;     // of one save
  std::string load = "auto";         // auto | none | latest | a step | a step's folder
  LoadExclusions exclude_from_loading = {};
  std::string initial_load_path;  // a Hugging Face folder or a step's folder
  bool text_only = false;         // models that a run saves are the language model without its wrapper
  std::string tokenizer;          // tokenizer.json that is copied into checkpoints; empty: none

  [[nodiscard]] bool saves_asynchronously() const { return enable && async_mode != AsyncMode::disabled; }
  bool operator==(const CheckpointConfig&) const = default;
};

struct MetricsConfig {
  std::int64_t log_freq = 1;
  std::string trace;          // "steps 3-5": steps that are traced; empty: none
  bool expert_loads = false;  // the rows of each expert
  std::string machine;        // machines/NAME.toml with this machine's peaks; empty: measured when needed
  bool operator==(const MetricsConfig&) const = default;
};

struct CommConfig {
  CommBackend backend = CommBackend::automatic;
  double timeout_seconds = 300;
  RankBinding bind = RankBinding::automatic;
  bool operator==(const CommConfig&) const = default;
};

struct OutputConfig {
  std::string dir = "out";
  bool operator==(const OutputConfig&) const = default;
};

struct RunConfig {
  ModelSpec model;  // the result of model.preset, model.path and the other model keys
  DataConfig data;
  TrainingConfig training;
  ParallelConfig parallelism;
  MoeConfig moe;
  LoraConfig lora;
  OptimizerConfig optimizer;
  LrSchedulerConfig lr_scheduler;
  GradScalerConfig grad_scaler;
  CheckpointConfig checkpoint;
  MetricsConfig metrics;
  CommConfig comm;
  OutputConfig output;
  ExpertLoad expert_load = {};  // that a prediction assumes; no key, since a run has its own
  bool operator==(const RunConfig&) const = default;

  [[nodiscard]] MeshShape mesh_shape() const;
  /// Ranks that see different samples: dp_replicate x dp_shard.
  [[nodiscard]] std::int64_t data_parallel_degree() const;
  /// Microbatches per step and rank. validate() has checked divisibility.
  [[nodiscard]] std::int64_t num_microbatches() const;
};

/// Ranks that divide the features of each expert.
[[nodiscard]] std::int64_t expert_tensor_degree(const ParallelConfig& parallelism);
/// True where tensor-parallel ranks divide the features of all experts, as of a dense branch: each computes all rows of
/// the group, and nothing is exchanged.
[[nodiscard]] bool divides_experts_as_dense(const ParallelConfig& parallelism);
/// Otherwise, the ranks that have features of the same experts and rows of different tokens.
[[nodiscard]] int num_feature_ranks(const ParallelConfig& parallelism);
/// Ranks that have the experts of a layer together, and exchange rows; 1: none.
[[nodiscard]] int num_expert_ranks(const ParallelConfig& parallelism);
/// Whether hosts or a machine decide how rows go to experts, since no key does.
[[nodiscard]] bool asks_for_nodes(const ParallelConfig& parallelism);
/// How many of the ranks that have the experts of a layer together are on each node with some of them; none: not
/// equally many neighbours.
[[nodiscard]] std::optional<int> ep_neighbours_on_node(const RunConfig& config);
/// Of the ranks that have the experts of a layer together, how many share a node, where rows go to experts in two hops;
/// 0: rows go directly; 1: all tokens go to all of these ranks.
[[nodiscard]] int ep_on_node(const RunConfig& config);
/// Neighbours over which rows go in a second hop: those of ep_on_node(), or those with features of the same experts.
/// 0: rows go directly; 1: all tokens go to all of the ranks that have the experts of a layer together.
[[nodiscard]] int inner_expert_ranks(const RunConfig& config);
/// Ranks that have the same experts of a stage's; 1 where experts are divided as dense layers are.
[[nodiscard]] int num_expert_holders(const RunConfig& config);

/// The method of context parallelism and the number of its ranks that exchange heads.
[[nodiscard]] KeyExchange key_exchange(const ParallelConfig& parallelism);
/// The user's names for a method, its ranks and those of them that exchange heads.
struct ExchangeKeys {
  std::string_view prefix = "parallelism.", method = "context_parallel_method", cp = "context_parallel_degree",
                   ulysses_degree = "context_parallel_ulysses_degree";
};
/// Throws Error for a method and degrees that contradict each other; how heads are divided is checked in nn.
void check_key_exchange(const ParallelConfig& parallelism, const ExchangeKeys& keys);
void check_context_parallel(const RunConfig& config);
/// moe.capacity_factor where experts drop rows in training by it, else 0.
[[nodiscard]] double capacity_factor_of(const RunConfig& config);
/// The fraction of a layer's rows that each of the ranks with its experts keeps under config.expert_load, the most
/// loaded first. Empty where no row is beyond a capacity.
[[nodiscard]] std::vector<double> kept_shares_of_ranks(const RunConfig& config);
/// Throws Error for degrees that do not divide a model's experts, or not among ranks that are neighbours.
void check_expert_parallel(const RunConfig& config);
/// Throws Error for what is not supported with experts, and for keys of [moe] without them.
void check_experts(const RunConfig& config);

/// Steps from 1 on, both ends included.
struct StepRange {
  std::int64_t first = 1, last = 0;
  [[nodiscard]] bool contains(std::int64_t step) const { return first <= step && step <= last; }
  bool operator==(const StepRange&) const = default;
};
/// Parses "steps 3-5" or "step 3", also without the word; empty: no step. At most 100 steps, since their traces stay in
/// memory. Throws Error naming metrics.trace.
[[nodiscard]] StepRange parse_traced_steps(const std::string& text);

/// Throws Error with the key, the value and a valid value to use for every contradiction that is visible without data.
/// Examples: batch sizes that do not divide, more stages than layers, tp that does not fit the heads, unsupported
/// features.
void validate(const RunConfig& config);
/// All of it but the limit of microbatches per rank, which a batch for many ranks exceeds while it has one rank.
void validate_without_layout(const RunConfig& config);

}  // namespace echelon
