#include "predict/software/operation_rewriter.h"

#include "nn/head_split.h"
#include "nn/sharding.h"
#include "spec/groups.h"

#include <iterator>
#include <optional>
#include <set>

namespace echelon {
namespace {

/// Of a sequence.
std::int64_t rows_of_rank(const RunConfig& config) {
  if (config.parallelism.context_parallel_degree == 1) return config.training.seq_len;
  return rows_per_rank(token_split(config));
}

/// What a rank attends to, one block after the other.
struct AttendedBlocks {
  std::int64_t num_blocks = 1, num_queries = 0, num_keys = 0;  // rows of a sequence
};
AttendedBlocks attended_blocks(const RunConfig& config) {
  const KeyExchange exchange = key_exchange(config.parallelism);
  const std::int64_t cp = config.parallelism.context_parallel_degree, T = config.training.seq_len,
                     rows = rows_of_rank(config);
  if (exchange.method == ContextMethod::all_gather) {  // of every kv head
    const int tp = static_cast<int>(config.parallelism.tensor_parallel_degree);
    return {head_split(config.model, tp, 0).num_kv_heads, rows, T};
  }
  const std::int64_t of_block = exchange.head_ranks == cp ? T : exchange.head_ranks * rows;
  return {cp / exchange.head_ranks, of_block, of_block};
}

/// Rewrites the operations of one action.
class OperationRewriter {
 public:
  OperationRewriter(const SoftwareProfile& profile, const RunConfig& config, const Action& action,
                    const CallTrace& trace)
      : profile_(profile), config_(config), action_(action), trace_(trace) {
    const ParallelConfig& p = config.parallelism;
    tp_ = p.tensor_parallel_degree;
    cp_ = p.context_parallel_degree;
    attended_ = attended_blocks(config);
    num_tokens_ = config.training.micro_batch_size * rows_of_rank(config);
    local_tokens_ = p.sequence_parallel ? num_tokens_ / tp_ : num_tokens_;
    width_ = config.model.hidden_size;
    dtype_ = config.training.dtype;
    logit_columns_ = (config.model.vocab_size + tp_ - 1) / tp_;
    const HeadSplit heads = head_split(config.model, static_cast<int>(tp_), 0);
    queries_per_key_ = heads.num_heads / heads.num_kv_heads;
    for (const OpRecord& operation : trace.operations()) ops_.push_back(operation);
  }

  CallTrace run() {
    out_.workspace_bytes = trace_.workspace_bytes;
    std::size_t num_seen = 0, next = 0;  // operations; the first one that is not part of an earlier one
    for (const TraceEvent& event : trace_.events) {
      if (std::holds_alternative<OpRecord>(event)) {
        if (num_seen++ == next) next += rewrite(next);
      } else if (const auto* started = std::get_if<CommRecord>(&event)) {
        rewrite_communication(*started);
      } else if (const std::optional<std::size_t> start = starts_[std::get<CommWait>(event).start]) {
        out_.events.emplace_back(CommWait{*start});
      }
    }
    return std::move(out_);
  }

 private:
  std::size_t rewrite(std::size_t i) {
    const OpRecord& op = ops_[i];
    switch (op.kind) {
      case OpKind::matmul: return rewrite_product(i);
      case OpKind::attention: attend(op); break;
      case OpKind::attention_backward: attend_backward(op); break;
      case OpKind::add_bias: break;  // in the epilogue of its matmul
      case OpKind::bias_backward:
        if (profile_.has_biases) push(op);
        break;
      case OpKind::add_positions:
      case OpKind::positions_backward:
        if (profile_.has_positions) push(op);
        break;
      case OpKind::row_exp: loss(op); break;
      case OpKind::rescale_sums:
      case OpKind::cross_entropy:
      case OpKind::cross_entropy_backward: break;  // in logit_bytes
      case OpKind::adamw: update(op); break;
      default: push(op);
    }
    return 1;
  }

  /// Matmuls that other software does at once: q, k and v; all of the head's tokens, which Echelon takes in chunks.
  std::size_t rewrite_product(std::size_t i) {
    OpRecord op = ops_[i];
    if (is_of_head(op)) {
      rewrite_head_product(op);
      return 1;
    }
    std::size_t used = 1;
    if (profile_.fuses_qkv) used = fuse_qkv(i, op);
    if (forms_weight_gradient(op)) accumulate(op);
    if (profile_.computes_in_fp8) {
      cast_operands(op);
      op.flops = static_cast<std::int64_t>(static_cast<double>(op.flops) / profile_.fp8_speedup);
    }
    push(op);
    return used;
  }

  /// To 8 bits from 16. TransformerEngine writes a transposed copy with each cast of tokens, which the gradient of the
  /// weight reads, and keeps weights in 8 bits for all microbatches.
  void cast_operands(const OpRecord& op) {
    if (!profile_.casts_tokens_once)
      push(elementwise(3 * (op.m * op.k + op.k * op.n)));
    else if (!forms_weight_gradient(op))
      push(elementwise(4 * op.m * op.k));
  }

  // The logits, the gradient of the head's input, that of its weight: each once, whatever Echelon recomputes to keep
  // less.
  void rewrite_head_product(OpRecord op) {
    const bool is_logits = op.n == logit_columns_, is_input_gradient = !is_logits && op.k == logit_columns_;
    if (is_logits && action_.kind == ActionKind::backward_weight) return;
    if (!head_seen_.insert(is_logits ? 0 : is_input_gradient ? 1 : 2).second) return;
    (is_logits || is_input_gradient ? op.m : op.k) = num_tokens_;
    op = product_of(op.m, op.n, op.k, op.dtype);
    if (!is_logits && !is_input_gradient) accumulate(op);
    push(op);
  }

  [[nodiscard]] bool forms_weight_gradient(const OpRecord& op) const {
    return computes_weight_gradients(action_.kind) && op.k == num_tokens_;
  }

  /// The result of a matmul for one microbatch is added to that of the others by a separate kernel.
  void accumulate(OpRecord& op) {
    op = product_of(op.m, op.n, op.k, op.dtype);
    if (config_.num_microbatches() == 1) return;
    if (profile_.accumulates_in_matmuls)
      op.bytes += (2 * size_of(config_.training.grad_dtype.value_or(DType::float32)) - size_of(op.dtype)) * op.m * op.n;
    else
      push(elementwise(profile_.accumulation_bytes * op.m * op.n));
  }

  static OpRecord product_of(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype) {
    return {.kind = OpKind::matmul,
            .dtype = dtype,
            .m = m,
            .n = n,
            .k = k,
            .flops = 2 * m * n * k,
            .bytes = (m * k + k * n + m * n) * size_of(dtype)};
  }

  [[nodiscard]] bool is_of_head(const OpRecord& op) const {
    return (op.m == logit_columns_ && op.n == width_) || (op.k == logit_columns_ && op.n == width_) ||
           (op.n == logit_columns_ && op.k == width_);
  }

  std::size_t fuse_qkv(std::size_t i, OpRecord& fused) const {
    const std::int64_t kv = head_split(config_.model, static_cast<int>(tp_), 0).num_kv_heads * config_.model.head_dim;
    std::vector<const OpRecord*> products;
    std::size_t end = i;
    for (; end < ops_.size() && products.size() < 3; ++end) {
      if (ops_[end].kind == OpKind::add_bias || ops_[end].kind == OpKind::bias_backward) continue;
      if (ops_[end].kind != OpKind::matmul) break;
      products.push_back(&ops_[end]);
    }
    if (products.size() < 3) return 1;
    const OpRecord &q = *products[0], &k = *products[1], &v = *products[2];
    for (std::int64_t OpRecord::*side : {&OpRecord::m, &OpRecord::n, &OpRecord::k}) {
      if (k.*side != kv || v.*side != kv) continue;
      OpRecord joined = q;
      joined.*side = k.*side;
      if (joined.m != k.m || joined.n != k.n || joined.k != k.k || v.m != k.m || v.n != k.n || v.k != k.k) continue;
      fused.*side = q.*side + 2 * kv;
      fused.flops += k.flops + v.flops;
      fused.bytes += k.bytes + v.bytes;
      return end - i;
    }
    return 1;
  }

  void attend(const OpRecord& op) {
    if (profile_.attention == AttentionKernel::fused) {
      push(op);
    } else {
      const std::int64_t S = attended_.num_queries, K = attended_.num_keys, C = op.k, scores = op.m * S * K;
      batched_product(op, S, K, C);
      push(elementwise(profile_.softmax_bytes * scores));
      if (profile_.has_dropout) push(elementwise(5 * scores));
      batched_product(op, S, C, K);
    }
    if (++num_attended_ % attended_.num_blocks != 0) return;  // to a block of keys that is not the last
    join_branches();
    run_unfused(1);
    const bool is_backward = action_.kind != ActionKind::forward;
    if (is_backward && profile_.reruns_whole_blocks && config_.training.recompute == whole_block) run_to_the_end();
  }

  void attend_backward(const OpRecord& op) {
    if (profile_.attention == AttentionKernel::fused) {
      push(op);
    } else {
      const std::int64_t S = attended_.num_queries, K = attended_.num_keys, C = op.k, scores = op.m * S * K;
      batched_product(op, K, C, S);  // dv = p^T dout
      batched_product(op, S, K, C);  // dp = dout v^T
      if (profile_.has_dropout) push(elementwise(5 * scores));
      push(elementwise(profile_.softmax_backward_bytes * scores));
      batched_product(op, S, C, K);  // dq
      batched_product(op, K, C, S);  // dk
    }
    if (++num_attended_backward_ % attended_.num_blocks != 0) return;
    run_unfused(2);
    if (profile_.has_dropout)
      for (int branch = 0; branch < 2; ++branch) push(elementwise(5 * local_tokens_ * width_));
  }

  void run_unfused(int times) {
    if (profile_.eager_bytes > 0)
      push(elementwise(
          static_cast<std::int64_t>(times * profile_.eager_bytes * static_cast<double>(local_tokens_ * width_))));
  }

  /// Of all heads and sequences at once. Heads are stored next to each other: where their width is no multiple of 16
  /// bytes, neither are their addresses, and the vector units multiply instead of the tensor cores.
  void batched_product(const OpRecord& op, std::int64_t m, std::int64_t n, std::int64_t k) {
    OpRecord product = product_of(m, n, k, op.dtype);
    if (config_.model.head_dim * size_of(op.dtype) % 16 != 0) product.dtype = DType::float32;
    product.m *= op.m;  // the tiles of all of them run at once
    product.flops *= op.m;
    product.bytes *= op.m;
    push(product);
  }

  /// Bias, dropout and sum with the residual are a kernel of their own, twice a block; Echelon's sum is part of the
  /// norm or an addition.
  void join_branches() {
    if (!profile_.has_dropout) return;
    push(elementwise(3 * local_tokens_ * width_));
    push(elementwise(local_tokens_ * width_));
  }

  /// The second half of the feed-forward layer, which Echelon need not recompute.
  void run_to_the_end() {
    const std::int64_t features = even_slice(config_.model.intermediate_size, tp_, 0).count;
    const OpRecord down = product_of(num_tokens_, width_, features, dtype_);
    push(elementwise(2 * size_of(dtype_) * down.m * down.k));
    push(down);
    push(elementwise(3 * size_of(dtype_) * local_tokens_ * width_));
    if (tp_ == 1) return;
    const std::size_t sum =
        start({.kind = config_.parallelism.sequence_parallel ? CommKind::reduce_scatter : CommKind::all_reduce,
               .group = tp_group,
               .group_size = static_cast<int>(tp_),
               .dtype = dtype_,
               .num_elements = num_tokens_ * width_});
    out_.events.emplace_back(CommWait{sum});
  }

  void loss(const OpRecord& op) {
    if (action_.kind == ActionKind::backward_weight) return;
    const double bytes = profile_.logit_bytes * static_cast<double>(op.m * op.n);
    push(elementwise(static_cast<std::int64_t>(bytes)));
    // A chunked head comes here chunk by chunk; the small kernels are launched once.
    for (; num_loss_kernels_ + 1 < profile_.loss_kernels; ++num_loss_kernels_) push(elementwise(0));
  }

  void update(const OpRecord& op) {
    push(op);
    push(elementwise(static_cast<std::int64_t>(profile_.optimizer_bytes * static_cast<double>(op.m))));
  }

  void rewrite_communication(CommRecord comm) {
    const bool is_hop = comm.group.axes == cp_group.axes && comm.peer >= 0;
    if (is_hop && profile_.repeats_kv_heads) {
      comm.num_elements *= queries_per_key_;
      comm.sent_bytes *= queries_per_key_;
    }
    if (is_hop && comm.dtype != dtype_ && profile_.rounds_key_gradients) {
      comm.sent_bytes = comm.sent_bytes * size_of(dtype_) / size_of(comm.dtype);
      comm.dtype = dtype_;
    } else if (is_hop && comm.group == cp_group && comm.dtype == dtype_ &&
               profile_.key_gathering != KeyGathering::none) {
      return gather_keys(comm);
    }
    const bool is_in_layer = is_compute(action_.kind);
    if (profile_.computes_in_fp8 && profile_.gathers_in_fp8 && is_in_layer && comm.kind == CommKind::all_gather &&
        comm.dtype == dtype_) {
      comm.num_elements /= 2;  // of half the size
      comm.sent_bytes /= 2;
    }
    // A chunked head reduces its statistics chunk by chunk; other software reduces them once.
    const bool is_statistic = is_in_layer && comm.kind == CommKind::all_reduce && comm.dtype != dtype_;
    if (is_statistic && statistic_) {
      std::get<CommRecord>(out_.events[*statistic_]).num_elements += comm.num_elements;
      starts_.emplace_back();
      return;
    }
    if (is_statistic) statistic_ = out_.events.size();
    if (profile_.gathers_each_parameter && config_.parallelism.zero_level == 3 && !is_in_layer &&
        comm.num_elements > width_)
      divide(comm);
    else
      starts_.emplace_back(start(comm));
  }

  /// In place of the hops of one attention, of which each sends and receives keys and values.
  void gather_keys(CommRecord comm) {
    constexpr std::int64_t records_per_hop = 4, keys_and_values = 2;
    const std::int64_t i = num_key_records_++ % ((cp_ - 1) * records_per_hop);
    if (i == 0) {
      comm.kind = CommKind::all_gather;
      comm.num_elements *= keys_and_values * cp_;
      comm.sent_bytes *= keys_and_values * (cp_ - 1);
      comm.peer = -1;
      key_gather_ = start(comm);
      if (profile_.key_gathering == KeyGathering::awaited) out_.events.emplace_back(CommWait{key_gather_});
    }
    // Where the first block of another rank is needed, all have come.
    starts_.push_back(i < records_per_hop ? std::optional(key_gather_) : std::nullopt);
  }

  // A block's 12 parameters: weight and bias of two norms, qkv, o_proj, up and down. They are released after each pass:
  // where blocks are recomputed, the two gathers of a step are three, hence half of one more each.
  void divide(CommRecord comm) {
    constexpr int num_parameters = 12;
    comm.num_elements /= num_parameters;
    const bool is_again = comm.kind == CommKind::all_gather && config_.training.recompute == whole_block;
    for (int i = 1; i < num_parameters + (is_again ? num_parameters / 2 : 0); ++i) start(comm);
    starts_.emplace_back(start(comm));
  }

  /// Returns its number among the communications.
  std::size_t start(const CommRecord& comm) {
    out_.events.emplace_back(comm);
    return num_started_++;
  }

  void push(const OpRecord& op) { out_.events.emplace_back(op); }
  [[nodiscard]] OpRecord elementwise(std::int64_t bytes) const {
    return {.kind = OpKind::copy, .dtype = dtype_, .m = bytes, .n = 1, .k = 1, .flops = 0, .bytes = bytes};
  }

  const SoftwareProfile& profile_;
  const RunConfig& config_;
  const Action& action_;
  const CallTrace& trace_;
  AttendedBlocks attended_;
  std::int64_t tp_ = 1, cp_ = 1, num_tokens_ = 0, local_tokens_ = 0, width_ = 0, logit_columns_ = 0,
               queries_per_key_ = 1;
  DType dtype_ = DType::float32;
  std::vector<OpRecord> ops_;  // of the trace
  std::set<int> head_seen_;
  int num_loss_kernels_ = 0;
  std::int64_t num_attended_ = 0, num_attended_backward_ = 0;  // blocks of keys
  std::int64_t num_key_records_ = 0;
  std::size_t key_gather_ = 0;
  std::optional<std::size_t> statistic_;            // its place among the events
  std::vector<std::optional<std::size_t>> starts_;  // by number of a communication in the trace: its number now
  std::size_t num_started_ = 0;
  CallTrace out_;
};

}  // namespace

CallTrace rewritten_operations(const SoftwareProfile& profile, const RunConfig& config, const Action& action,
                               const CallTrace& trace) {
  return OperationRewriter(profile, config, action, trace).run();
}

}  // namespace echelon
