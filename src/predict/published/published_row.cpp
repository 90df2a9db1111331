#include "predict/published/published_row.h"

#include "base/error.h"
#include "predict/published/words.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <tuple>

namespace echelon {
namespace {

/// None where a format of 16 bits may be meant, or nothing is said of one: "mixed", "fp8".
std::optional<DType> named_format(const std::string& precision) {
  if (has(precision, "bf16") || has(precision, "bfloat16")) return DType::bfloat16;
  if (has(precision, "fp32") || has(precision, "float32")) return DType::float32;
  if (has(precision, "16") || has(precision, "half")) return DType::float16;
  return std::nullopt;
}

/// What no word of is never timed at another format's rates.
void require_known_format(const std::string& precision) {
  constexpr std::string_view others[] = {"float", "fp8", "fp4", "mixed"};
  const std::string text = lower(precision);
  const bool is_known = std::any_of(std::begin(others), std::end(others), [&](auto word) { return has(text, word); });
  require(text.empty() || is_known || named_format(text),
          "precision = '{}' is not a format of rows (use bf16, fp16, fp32 or fp8)", precision);
}

/// Reads one row into a config.
class RowReader {
 public:
  explicit RowReader(const CsvRow& row) : row_(row) {}

  RunConfig read() {
    require(row_.surplus_fields == 0, "the row has {} fields more than the header", row_.surplus_fields);
    require(!row_.at("gpu").empty(), "gpu is blank, but a prediction needs it");
    set_model();
    set_experts();
    set_layout();
    pad_vocabulary();
    set_training();
    set_schedule();
    return config_;
  }

 private:
  [[nodiscard]] std::string word(std::string_view column) const { return lower(row_.at(column)); }

  [[nodiscard]] std::int64_t count(std::string_view column, std::int64_t otherwise) const {
    const std::string text = row_.at(column);
    if (text.empty()) return otherwise;
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    require(error == std::errc() && number >= 0 && number < 1e15 && std::floor(number) == number &&
                (end == text.data() + text.size() || *end == '?'),
            "{} = '{}' is not a whole number (use {})", column, text, std::max<std::int64_t>(otherwise, 1));
    return static_cast<std::int64_t>(number);
  }

  [[nodiscard]] std::int64_t needed(std::string_view column) const {
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    require(!row_.at(column).empty(), "{} is blank, but a prediction needs it", column);
    const std::int64_t value = count(column, 1);
    require(value >= 1 && value <= most, "{} = {} is not between 1 and {} (use {})", column, value, most,
            value < 1 ? 1 : most);
    return value;
  }

  [[nodiscard]] std::int64_t degree(std::string_view column) const {
    return std::max<std::int64_t>(1, count(column, 1));
  }

  /// Of what there is at least one: 0 is read as blank.
  [[nodiscard]] std::int64_t size(std::string_view column, std::int64_t otherwise) const {
    const std::int64_t value = count(column, otherwise);
    return value > 0 ? value : otherwise;
  }

  void set_model() {
    const std::string mlp = word("mlp");
    const bool is_gated = has(mlp, "glu");
    config_.model = family_defaults(is_gated ? Family::llama : Family::gpt2);
    ModelSpec& model = config_.model;
    model.hidden_size = needed("hidden");
    model.num_hidden_layers = needed("layers");
    model.num_attention_heads = size("heads", usual_heads(model.hidden_size));
    model.num_key_value_heads = size("kv_heads", model.num_attention_heads);
    require(!row_.at("head_dim").empty() || model.hidden_size % model.num_attention_heads == 0,
            "heads = {} do not divide hidden = {} (use {})", model.num_attention_heads, model.hidden_size,
            std::max<std::int64_t>(1, model.hidden_size / 128));
    model.head_dim = size("head_dim", model.hidden_size / model.num_attention_heads);
    model.intermediate_size = count("ffn", is_gated ? model.hidden_size * 8 / 3 : 4 * model.hidden_size);
    model.max_position_embeddings = needed("seq");
    model.vocab_size = count("vocab", usual_vocabulary());
  }

  /// In every layer.
  void set_experts() {
    require(size("experts", 1) > 1 || degree("ep") == 1, "ep = {} divides experts, but experts = '{}' (use 1)",
            row_.at("ep"), row_.at("experts"));
    if (size("experts", 1) == 1) return;
    ModelSpec& model = config_.model;
    require(model.family == Family::llama,
            "experts = {} with mlp = '{}': only experts of SwiGLU are known (use swiglu)", row_.at("experts"),
            row_.at("mlp"));
    const std::int64_t features = model.intermediate_size, of_shared = count("shared_ffn", 0);
    model.family = of_shared > 0 ? Family::dots1 : Family::mixtral;
    model.mixture.num_experts = size("experts", 1);
    model.mixture.num_experts_per_tok = size("topk", 2);
    model.mixture.moe_intermediate_size = features;
    model.mixture.shared_expert_intermediate_size = of_shared;
    model.mixture.norm_topk_prob = true;
    model.mixture.put_in_all_layers();
    ParallelConfig& p = config_.parallelism;
    p.expert_parallel_degree = degree("ep");
    p.expert_tensor_parallel_degree = size("etp", degree("tp"));
    set_balance();
  }

  /// "capacity 1", "forced balance"; others, such as "dropless", take all rows.
  void set_balance() {
    const std::string balance = word("balance");
    config_.moe.force_balance = has(balance, "forced");
    constexpr std::string_view capacity = "capacity";
    const std::size_t at = balance.find(capacity);
    if (at == std::string::npos) return;
    config_.moe.capacity_factor = std::strtod(balance.c_str() + at + capacity.size(), nullptr);
    require(config_.moe.capacity_factor > 0, "balance = '{}' has no factor of a capacity (use 'capacity 1')",
            row_.at("balance"));
  }

  /// Heads of about 128, as many as tp and the width can be divided by.
  [[nodiscard]] std::int64_t usual_heads(std::int64_t width) const {
    constexpr std::int64_t widest = 1 << 20;
    std::int64_t best = 1;
    for (std::int64_t heads = 1; heads <= std::min(width, widest); ++heads)
      if (width % heads == 0 && heads % degree("tp") == 0 &&
          std::abs(width / heads - 128) < std::abs(width / best - 128))
        best = heads;
    return best;
  }

  /// Of those in use the one with which the model comes closest to params_b; without that, GPT-2's.
  [[nodiscard]] std::int64_t usual_vocabulary() const {
    constexpr std::int64_t gpt2 = 50304;  // padded
    // Qi et al.'s sizes, 1.5 to 28.3 B, are those of tied models with it.
    if (has(word("software"), "sail")) return 32000;
    const double billions = std::strtod(row_.at("params_b").c_str(), nullptr);
    ModelSpec model = config_.model;
    std::int64_t best = gpt2;
    double least = std::numeric_limits<double>::infinity();
    for (const std::int64_t size : {gpt2, std::int64_t{32000}, std::int64_t{128256}, std::int64_t{250880}}) {
      model.vocab_size = size;
      const double miss = std::abs(static_cast<double>(model.num_parameters()) / 1e9 - billions);
      if (billions > 0 && miss < least) std::tie(least, best) = std::pair(miss, size);
    }
    return best;
  }

  void set_layout() {
    ParallelConfig& p = config_.parallelism;
    const std::int64_t num_gpus = needed("gpus");
    p.tensor_parallel_degree = degree("tp");
    p.pipeline_parallel_degree = degree("pp");
    p.context_parallel_degree = degree("cp");
    const std::int64_t of_model = p.tensor_parallel_degree * p.pipeline_parallel_degree * p.context_parallel_degree;
    const std::int64_t dp = count("dp", std::max<std::int64_t>(1, num_gpus / of_model));
    const std::string context = p.context_parallel_degree > 1 ? fmt::format(" x cp {}", p.context_parallel_degree) : "";
    require(dp >= 1 && dp * of_model == num_gpus, "gpus = {} is not tp {} x pp {}{} x dp {} (use {})", num_gpus,
            p.tensor_parallel_degree, p.pipeline_parallel_degree, context, dp, dp * of_model);
    p.sequence_parallel = count("sp", 0) != 0 && p.tensor_parallel_degree > 1;
    set_sharding(dp);
  }

  /// Megatron's --make-vocab-size-divisible-by is 128 for each tensor-parallel rank.
  void pad_vocabulary() {
    if (has(word("software"), "fsdp") || has(word("software"), "titan")) return;
    const std::int64_t multiple = 128 * config_.parallelism.tensor_parallel_degree;
    config_.model.vocab_size = (config_.model.vocab_size + multiple - 1) / multiple * multiple;
  }

  /// "3", "3?", "ZeRO-3", "stage 3".
  [[nodiscard]] static std::int64_t level_of(const std::string& zero) {
    if (zero == "none") return 0;
    const std::size_t digit = zero.find_first_of("0123456789");
    const double level =
        digit == std::string::npos || zero.starts_with('-') ? -1 : std::strtod(zero.c_str() + digit, nullptr);
    require(level == 0 || level == 1 || level == 2 || level == 3, "zero = '{}' is not a ZeRO level (use {})", zero,
            level > 3 ? 3 : 0);
    return static_cast<std::int64_t>(level);
  }

  void set_sharding(std::int64_t dp) {
    ParallelConfig& p = config_.parallelism;
    const std::string zero = word("zero");
    if (has(zero, "hsdp")) {
      const std::int64_t per_node = std::min<std::int64_t>(8 / std::min<std::int64_t>(8, p.tensor_parallel_degree), dp);
      p.data_parallel_shard_degree = dp % per_node == 0 ? per_node : dp;
      p.data_parallel_replicate_degree = dp / p.data_parallel_shard_degree;
      p.zero_level = 3;
      return;
    }
    std::int64_t level = zero.empty() ? (count("dist_opt", 0) != 0 ? 1 : 0) : level_of(zero);
    // Megatron's distributed optimizer; DeepSpeed's pipelines refuse more, too.
    if (level == 2 && p.pipeline_parallel_degree > 1) level = 1;
    const std::int64_t of_model = p.tensor_parallel_degree * p.context_parallel_degree;
    require(level > 0 || of_model % degree("ep") == 0,
            "ep = {} is of ranks that shard their states, but zero = '{}' has them on each (use zero = 1)",
            degree("ep"), row_.at("zero"));
    if (level == 0) {
      p.data_parallel_replicate_degree = dp;
      // Megatron's, and DeepSpeed's: replicas inside the pipeline.
      p.order = parse_axis_order("parallelism.order", {"tp", "cp", "dp", "pp"});
      return;
    }
    p.data_parallel_shard_degree = dp;
    p.zero_level = level;
    // As torchtitan does with a pipeline.
    if (level == 3 && p.pipeline_parallel_degree > 1) p.reshard_after_forward = ReshardAfterForward::never;
    // SHARD_GRAD_OP: parameters are gathered once for forward and backward.
    if (level == 2 && has(word("software"), "fsdp")) {
      p.zero_level = 3;
      p.reshard_after_forward = ReshardAfterForward::never;
    }
  }

  void set_training() {
    TrainingConfig& t = config_.training;
    t.seq_len = needed("seq");
    t.dtype = named_format(word("precision")).value_or(DType::bfloat16);
    const std::int64_t dp = config_.data_parallel_degree(), batch = needed("gbs");
    t.micro_batch_size = std::max<std::int64_t>(1, std::min(size("mbs", usual_microbatch(batch / dp)), batch / dp));
    const std::int64_t per_microbatch = dp * t.micro_batch_size;
    t.global_batch_size = std::max<std::int64_t>(1, (batch + per_microbatch / 2) / per_microbatch) * per_microbatch;
    // Gradients have the format of the weights in fp16, where all is bf16, and in NeMo's recipes (grad_reduce_in_fp32
    // is false there); sums of other bf16 ones are kept and reduced in 32 bits.
    const std::string precision = word("precision");
    if (t.dtype == DType::float16 ||
        (t.dtype == DType::bfloat16 &&
         (has(precision, "pure") || has(word("software"), "ibm") || is_recent_nemo(word("software")))))
      t.grad_dtype = t.dtype;
    set_recompute();
  }

  /// torchtitan divides a rank's batch into as many microbatches as there are stages (its configs up to 2025); others
  /// are taken to use sequence after sequence.
  [[nodiscard]] std::int64_t usual_microbatch(std::int64_t batch_of_rank) const {
    const std::int64_t pp = config_.parallelism.pipeline_parallel_degree;
    return has(word("software"), "titan") && pp > 1 ? std::max<std::int64_t>(1, batch_of_rank / pp) : 1;
  }

  void set_recompute() {
    TrainingConfig& t = config_.training;
    const std::string recompute = word("recompute");
    if (has(recompute, "full")) {
      t.recompute = whole_block;
    } else if (has(recompute, "layer")) {  // some layers whole: every other one
      t.recompute = whole_block;
      t.recompute_method = RecomputeMethod::block;
      t.recompute_num_layers =
          std::max<std::int64_t>(1, config_.model.num_hidden_layers / config_.parallelism.pipeline_parallel_degree / 2);
    } else if (has(recompute, "op") || (has(recompute, "selective") && has(word("software"), "titan"))) {
      t.recompute = {BlockOperation::mlp};  // every other matmul, which is about gate and up
    } else if (has(recompute, "selective") || has(recompute, "attn")) {
      t.recompute = {BlockOperation::core_attn};
    } else if (has(recompute, "qkv")) {
      t.recompute = {BlockOperation::core_attn, BlockOperation::o_proj, BlockOperation::mlp};
    }
  }

  void set_schedule() {
    ParallelConfig& p = config_.parallelism;
    if (p.pipeline_parallel_degree == 1) return;
    const std::string name = word("schedule");
    // Where it is blank, interleaved stages have a layer each.
    const std::int64_t of_rank = config_.model.num_hidden_layers / p.pipeline_parallel_degree,
                       num_virtual = size("vpp", has(name, "interleav") ? std::max<std::int64_t>(1, of_rank) : 1);
    if (has(name, "2p"))
      p.pipeline_parallel_schedule = PipelineSchedule::zb_2p;
    else if (has(name, "1p"))
      p.pipeline_parallel_schedule = PipelineSchedule::zb_1p;
    else if (has(name, "zb") && has(name, "v"))
      p.pipeline_parallel_schedule = PipelineSchedule::zb_v;
    else if (has(name, "h2"))
      p.pipeline_parallel_schedule = PipelineSchedule::zb_h2;
    else if (has(name, "h1"))
      p.pipeline_parallel_schedule = PipelineSchedule::zb_h1;
    else if (has(name, "gpipe"))
      p.pipeline_parallel_schedule = PipelineSchedule::gpipe;
    else if (num_virtual > 1)
      p.pipeline_parallel_schedule = PipelineSchedule::interleaved_one_f_one_b;
    const bool loops = p.pipeline_parallel_schedule == PipelineSchedule::interleaved_one_f_one_b;
    if (loops) p.virtual_stages = num_virtual;
    if (p.pipeline_parallel_schedule == PipelineSchedule::zb_1p ||
        p.pipeline_parallel_schedule == PipelineSchedule::zb_2p) {
      // Of 1 for the others: attention's core, norms and dropout have no part in weights' gradients.
      p.pipeline_backward_weight_ms = 0.55;
      p.pipeline_p2p_ms = 0.03;
    }
    const std::int64_t stages = p.pipeline_parallel_degree * (loops ? num_virtual : 1),
                       layers = config_.model.num_hidden_layers;
    if (layers % stages != 0 && (layers + 2) % stages == 0)  // embedding and head count as a layer each
      p.pipeline_parallel_layout.counts.assign(static_cast<std::size_t>(stages), (layers + 2) / stages);
  }

  const CsvRow& row_;
  RunConfig config_;
};

}  // namespace

DescribedRun described_run(const CsvRow& row) {
  require_known_format(row.at("precision"));
  DescribedRun run;
  run.config = RowReader(row).read();
  run.machine = described_machine({row.at("gpu"), row.at("gpu_mem_gb"), row.at("intra"), row.at("inter_per_node"),
                                   run.config.mesh_shape().num_ranks()});
  // Mixed precision before bfloat16.
  TrainingConfig& t = run.config.training;
  if (!named_format(lower(row.at("precision"))) && run.machine.nodes.front().device.lacks(name_of(t.dtype)))
    t.grad_dtype = t.dtype = DType::float16;
  run.profile = described_software({row.at("software"), row.at("precision"), row.at("flash_attn"), row.at("async_tp"),
                                    row.at("zero"), row.at("source"), row.at("mlp")});
  return run;
}

}  // namespace echelon
