// The arithmetic that layers are made of: some forty operations on tensors, the same for every backend.
//
// Asynchronous in form: an operation is enqueued on the backend's compute lane and runs after those enqueued before it.
// Whoever hands a tensor to a Comm or reads it on the host calls publish() first. Backends: ops/reference (the oracle),
// ops/cpu, ops/trace, ops/delayed.
//
// Legend: N tokens of this rank (batch x sequence, flattened), B sequences, T positions, D model width, H heads, K kv
// heads, C head width, V vocabulary columns of this rank. Activations x, y and weights w share one dtype (float32,
// float64, or bfloat16 or float16, which are numbers in memory alone); statistics (mean, rstd, lse, ...) have
// accumulate_dtype of it; gradients of weights have a dtype of their own (accumulate_dtype unless said otherwise). Sums
// are formed in accumulate_dtype. A gradient of an activation is overwritten, a gradient of a weight is added to.
#pragma once

#include "tensor/tensor.h"
#include "tensor/tokens.h"

#include <cstdint>
#include <optional>

namespace echelon {

/// What the numbers of a product's operand are rounded to before they are multiplied: nothing, or 8 bits with a scale
/// per tensor (ops/float8.h).
enum class OperandFormat : std::uint8_t { own, float8_e4m3, float8_e5m2 };

/// c[M, N] = op(a)[M, K] op(b)[K, N], or += if `accumulates`. a and b share a dtype; c has it too or its
/// accumulate_dtype. In float8 both operands are rounded, not both to e5m2; N, K and the M of a transposed a are
/// multiples of 16, and the backend may put what it makes of the operands into `scratch`, int32 [float8_scratch_size].
struct MatmulArgs {
  Tensor a, b, c;
  bool transpose_a = false;  // a is [K, M]
  bool transpose_b = false;  // b is [N, K]
  bool accumulates = false;
  OperandFormat a_format = OperandFormat::own, b_format = OperandFormat::own;
  Tensor scratch = {};

  [[nodiscard]] bool is_float8() const { return a_format != OperandFormat::own; }
};
/// A byte for each number of the operands, in lines of 256, and a line besides.
[[nodiscard]] constexpr std::int64_t float8_scratch_size(std::int64_t a_elements, std::int64_t b_elements) {
  return ((a_elements + 255) / 256 + (b_elements + 255) / 256 + 1) * (256 / size_of(DType::int32));
}

/// y[N, D] = w[token - first_row], zero where the row is not of this shard. Tokens int32 [N].
struct EmbeddingArgs {
  Tensor tokens, w, y;
  std::int64_t first_row = 0;
};
/// dw[token - first_row] += dy, in the order of the tokens.
struct EmbeddingBackwardArgs {
  Tensor tokens, dy, dw;
  std::int64_t first_row = 0;
};

/// y[n] += w[(first_token + n) % T]: learned positions. w [max positions, D].
struct PositionsArgs {
  Tensor w, y;
  std::int64_t seq_len = 0;
  std::int64_t first_token = 0;
};
struct PositionsBackwardArgs {
  Tensor dy, dw;
  std::int64_t seq_len = 0;
  std::int64_t first_token = 0;
};

/// LayerNorm (Ba et al. 2016): y = (x - mean) rstd w + b; mean, rstd [N] are written. With a residual, x += residual
/// before.
struct LayerNormArgs {
  Tensor x, w, b, y, mean, rstd;
  Tensor residual = {};
  double eps = 1e-5;
};
/// With dresidual, the gradient that came to x past the norm, dx is the sum of both; dx may be dresidual.
struct LayerNormBackwardInputArgs {
  Tensor dy, x, w, mean, rstd, dx;
  Tensor dresidual = {};
};
struct LayerNormBackwardWeightArgs {
  Tensor dy, x, mean, rstd, dw, db;
};

/// Both gradients in one pass over dy and x.
struct LayerNormBackwardArgs {
  Tensor dy, x, w, mean, rstd, dx, dw, db;
  Tensor dresidual = {};
};

/// RMSNorm (Zhang and Sennrich 2019): y = x rstd w with rstd = 1/sqrt(mean(x^2) + eps) [N], which is written. With a
/// residual, x += residual before.
struct RmsNormArgs {
  Tensor x, w, y, rstd;
  Tensor residual = {};
  double eps = 1e-5;
};
struct RmsNormBackwardInputArgs {
  Tensor dy, x, w, rstd, dx;
  Tensor dresidual = {};
};
struct RmsNormBackwardWeightArgs {
  Tensor dy, x, rstd, dw;
};
struct RmsNormBackwardArgs {
  Tensor dy, x, w, rstd, dx, dw;
  Tensor dresidual = {};
};

/// Rotary positions (Su et al. 2021), half-split as in Hugging Face: pairs (i, i + C/2). x, y [B, T, H, C], may be the
/// same; cos, sin [>= T, C/2] in accumulate_dtype.
struct RopeArgs {
  Tensor x, y, cos, sin;
  bool inverse = false;             // the transposed rotation, for the backward pass
  std::int64_t first_position = 0;  // of row 0 of x, in the tables
};

/// Which keys a query sees. Queries and keys are parts of a sequence: query i is at position first_query + i, key j at
/// first_key + j, and a query sees the keys up to its own position; with `starts` (int32 [B, Tq], positions that do not
/// decrease along Tq) those from starts[b, i] on, the begin of its document. Keys may lie anywhere in the sequence,
/// also such that some queries see none: their out is 0, and their lse -inf.
struct AttentionMask {
  std::optional<std::int64_t> first_query = {};  // if none is said: such that the last query is at the last key
  std::int64_t first_key = 0;
  Tensor starts = {};

  /// Query i sees no key beyond i + this.
  [[nodiscard]] std::int64_t diagonal(std::int64_t Tq, std::int64_t Tk) const {
    return first_query ? *first_query - first_key : Tk - Tq;
  }
};

/// Causal attention that never stores T x T (Dao et al. 2022). q, out [B, Tq, H, C]; k, v [B, Tk, K, C]; lse [B, H, Tq]
/// is written: log sum exp of the scaled scores. Head h reads kv head (h + first_head) / group, where group = query
/// heads per kv head.
struct AttentionArgs {
  Tensor q, k, v, out, lse;
  double scale = 1.0;
  std::int64_t group = 1;
  std::int64_t first_head = 0;
  AttentionMask mask = {};
};
/// delta [B, H, Tq] (accumulate_dtype) is scratch: row sums of dout * out. Where keys and values are a part of those
/// that the queries attend to, out and lse are those of the whole rows; dk and dv are of this part then, and dq what
/// comes from it: the sum over all parts is dq of the whole. `scratch`, int32 [attention_scratch_size], may be left
/// out; with it a backend may have faster ways.
struct AttentionBackwardArgs {
  Tensor q, k, v, out, lse, dout;
  Tensor dq, dk, dv;
  Tensor delta;
  double scale = 1.0;
  std::int64_t group = 1;
  std::int64_t first_head = 0;
  AttentionMask mask = {};
  Tensor scratch = {};
};
/// What cuDNN's gradients of attention keep outside of the operands where sums may be formed in any order
/// (cudnn-frontend 1.32, scaled_dot_product_flash_attention.h): dq [B, H, Tq, C] and the row sums of dout * out [B, H,
/// Tq] in float32; where query heads share keys, dk and dv of each query head [B, H, Tk, C] in their own dtype; tiles
/// of 128 rows are taken to be whole. And 1 MiB for what a plan has besides.
[[nodiscard]] inline std::int64_t attention_scratch_size(const Tensor& q_BTHC, const Tensor& k_BTKC) {
  constexpr std::int64_t tile = 128, of_a_plan = std::int64_t{1} << 20U;
  const auto rows = [&](const Tensor& x) {
    return q_BTHC.size(0) * q_BTHC.size(2) * ((x.size(1) + tile - 1) / tile * tile);
  };
  const std::int64_t C = q_BTHC.size(3), of_queries = rows(q_BTHC) * (C + 1) * size_of(DType::float32);
  const std::int64_t of_keys = q_BTHC.size(2) == k_BTKC.size(2) ? 0 : 2 * rows(k_BTKC) * C * size_of(k_BTKC.dtype);
  return (of_queries + of_keys + of_a_plan) / size_of(DType::int32);
}
/// Joins attention to two parts of the keys (Dao 2023, section 2.3; Liu et al. 2023, Ring Attention), where lse' =
/// log(exp(lse) + exp(part_lse)):
///   out = exp(lse - lse') out + exp(part_lse - lse') part      lse = lse'
/// part [B, T, H, C], part_lse [B, H, T]; out in part's dtype or its accumulate_dtype. A row that sees nothing of
/// either part stays as it is.
struct MergeAttentionArgs {
  Tensor out, lse, part, part_lse;
};

/// y = gelu(x + bias), the tanh approximation (Hendrycks and Gimpel 2016). x, y [N, D]; bias [D] may be left out. y may
/// be x.
struct GeluArgs {
  Tensor x, y;
  Tensor bias = {};
};
/// dx = dy gelu'(x + bias); with dbias [D], dbias += the column sums of dx; with y, y = gelu(x + bias) once more, since
/// keeping it from the forward pass costs its memory, and here one product. dx may be x, and y may be dy.
struct GeluBackwardArgs {
  Tensor dy, x, dx;
  Tensor bias = {}, dbias = {}, y = {};
};
/// y = silu(gate) up (Shazeer 2020).
struct SwigluArgs {
  Tensor gate, up, y;
};
/// With y, y = silu(gate) up once more. dgate may be gate, dup may be up, and y may be dy.
struct SwigluBackwardArgs {
  Tensor dy, gate, up, dgate, dup;
  Tensor y = {};
};

/// One chunk of the vocabulary-parallel softmax. logits [n, V] in the activations' dtype or its accumulate_dtype;
/// column j is token first_column + j; columns from valid_columns on are padding and ignored. max[n] = the largest of
/// these columns (-inf if none is valid); sum[n] = sum_j exp(logit_j - max); target_logit[n] = the logit of the row's
/// target if it lies in this shard, else 0 (ignored ones too): in accumulate_dtype. Logits of 16 bits stay as they are.
/// Others belong to the backend afterwards, which may leave exp(logit - max) in their place for cross_entropy_backward.
struct RowExpArgs {
  Tensor logits, targets, max, sum, target_logit;
  std::int64_t first_column = 0;
  std::int64_t valid_columns = 0;
};
/// sum[n] *= exp(max - row_max): from the largest logit of a shard to that of the whole row.
struct RescaleSumsArgs {
  Tensor sum, max, row_max;
};
/// lse[n] = max + log(sum); loss_sum (float64 [1]) += sum over rows with a target of lse - target_logit.
struct CrossEntropyArgs {
  Tensor max, sum, target_logit, targets, lse, loss_sum;
};
/// dlogits = scale (softmax - onehot(target)) with softmax = exp(logit - lse); zero in rows without a target and in
/// padding columns. exps are the logits as row_exp of the same backend left them, and max is row_exp's. dlogits has the
/// activations' dtype; where exps have it too, it may be the same tensor. With loss_scale (float64 [1]), which may be
/// another number in every step, scale is multiplied by it.
struct CrossEntropyBackwardArgs {
  Tensor exps, max, lse, targets, dlogits;
  Tensor loss_scale = {};
  std::int64_t first_column = 0;
  std::int64_t valid_columns = 0;
  double scale = 1.0;
};

/// The random bits with which numbers are rounded to bfloat16: a function of `key` and of an element's index in the
/// whole parameter, so that no layout changes them. Element i of the tensors is element offset + l / row * stride + l %
/// row of the parameter, l = first + i: a slice lies in it row by row.
struct RoundingNoise {
  std::uint64_t stream = 0;  // of the parameter
  std::uint64_t key = 0;     // of the seed, and then of the step too (at_step)
  std::int64_t first = 0, row = 1, stride = 1, offset = 0;
};

/// Gradients of the loss sum / expected_targets loss_scale (1 if left out), of which sum_of_squares is over all ranks,
/// become those of the mean over num_targets, clipped to max_norm (Pascanu et al. 2013), when they are multiplied by
/// `factor`. All tensors are float64 [1]; norm and factor are written:
///   correction = expected_targets / num_targets / loss_scale, or 0 without any target;  norm = correction
///   sqrt(sum_of_squares) factor = correction min(1, max_norm / (norm + 1e-6)), without the minimum if max_norm is 0;
///   NaN, with which adamw changes nothing, if norm is not finite
struct GradientFactorArgs {
  Tensor sum_of_squares, num_targets, norm, factor;
  Tensor loss_scale = {};
  double expected_targets = 0, max_norm = 0;
};

/// What of an AdamW step is another number in every step: it lies in the backend's memory, so that nothing of the step
/// needs to be enqueued anew for it.
struct AdamWScalars {
  double lr = 0;
  double step_size = 0;   // lr / (1 - beta1^step)
  double sqrt_bias2 = 1;  // sqrt(1 - beta2^step)
  double step = 1;        // from 1
  double grad_scale = 1;  // GradientFactorArgs::factor
};
inline constexpr std::int64_t num_adamw_scalars = sizeof(AdamWScalars) / sizeof(double);

/// One AdamW step (Loshchilov and Hutter 2019) with PyTorch's order of operations, all tensors but `scalars` flat and
/// equally long:
///   g = grad_scale grad;  p -= lr weight_decay p;  m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g^2
///   p -= step_size m / (sqrt(v) / sqrt_bias2 + eps)
/// with what AdamWScalars names, read from `scalars` (float64 [num_adamw_scalars]) when it runs. If grad_scale is NaN
/// everything stays as it was. p is `master` (accumulate_dtype); `param` receives it rounded, and may be the same
/// tensor as `master`. Beside a bfloat16 `param`, `master` may be int16, what p has beyond `param` (ops/remainder.h). m
/// and v have the dtype of p, or beside float32 bfloat16: then they are rounded up or down at random, by `noise`, so
/// that on average they keep what is less than a unit in their last place.
struct AdamWArgs {
  Tensor param, master, grad, m, v, scalars;
  double beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  RoundingNoise noise = {};  // its key of the seed alone
};
/// `master` has what is missing in `param`.
[[nodiscard]] inline bool is_remainder(const AdamWArgs& args) {
  return args.param.dtype == DType::bfloat16 && args.master.dtype == DType::int16;
}

// Mixtures of experts (Shazeer et al. 2017), without padding (Gale et al. 2022). Each of N tokens goes to k of E
// experts, which makes R = N k rows: those of one expert lie together, expert after expert, and those of expert e are
// offsets[e] up to offsets[e + 1]. The host never learns how many they are. Rows from offsets[E] on are nobody's: they
// are left alone, and what they hold means nothing.

/// slots[n, j] = the row of token n at its j-th expert, int32 [N, k]; an expert's rows are in the order of tokens, then
/// of j. experts int32 [N, k]; those of this shard are first_expert up to first_expert + E, a token has no row at
/// others: slot -1. offsets int32 [E + 1], E from 1 to most_experts.
struct ExpertSlotsArgs {
  Tensor experts, slots, offsets;
  std::int64_t first_expert = 0;
};
constexpr std::int64_t most_experts = 8192;

/// y[slots[n, j]] = x[n]. x [N, D], y [R, D]. Its gradient is combine_experts without weights.
struct PermuteToExpertsArgs {
  Tensor x, slots, y;
};
/// out[n] = sum_j weights[n, j] y[slots[n, j]] in the order of j, without those that have no slot. weights [N, k] in
/// accumulate_dtype; left out: ones.
struct CombineExpertsArgs {
  Tensor y, slots, out;
  Tensor weights = {};
};
/// dy[slots[n, j]] = weights[n, j] dout[n], dweights[n, j] = <dout[n], y[slots[n, j]]>, zero without a slot. dy may be
/// y.
struct CombineExpertsBackwardArgs {
  Tensor dout, y, slots, weights, dy, dweights;
};

/// c[r] = a[r] w[e] for the rows r of expert e, or += if `accumulates`. a [R, K], c [R, N], w [E, K, N], all of one
/// dtype.
struct GroupedMatmulArgs {
  Tensor a, w, offsets, c;
  bool transpose_w = false;  // w is [E, N, K]
  bool accumulates = false;
};
/// dw[e] += sum over the rows r of expert e of dy[r]^T x[r]. dy [R, F], x [R, D], dw [E, F, D].
struct GroupedMatmulBackwardWeightArgs {
  Tensor dy, x, offsets, dw;
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual void matmul(const MatmulArgs& args) = 0;
  virtual void add_bias(Tensor y_ND, Tensor bias_D) = 0;         // y += bias in every row
  virtual void bias_backward(Tensor dy_ND, Tensor dbias_D) = 0;  // dbias += column sums of dy
  virtual void add(
      Tensor out, Tensor a,
      Tensor b) = 0;  // out = a + b, elementwise; out may be a or b; of float32 and one of 16 bits b may be the other
  virtual void copy(Tensor out, Tensor x) = 0;  // out = x, converting the dtype
  virtual void fill(Tensor out, double value) = 0;
  virtual void scale(Tensor x, double factor) = 0;

  virtual void embedding(const EmbeddingArgs& args) = 0;
  virtual void embedding_backward(const EmbeddingBackwardArgs& args) = 0;
  virtual void add_positions(const PositionsArgs& args) = 0;
  virtual void positions_backward(const PositionsBackwardArgs& args) = 0;

  virtual void layer_norm(const LayerNormArgs& args) = 0;
  virtual void layer_norm_backward_input(const LayerNormBackwardInputArgs& args) = 0;
  virtual void layer_norm_backward_weight(const LayerNormBackwardWeightArgs& args) = 0;
  virtual void layer_norm_backward(const LayerNormBackwardArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  virtual void rms_norm_backward_input(const RmsNormBackwardInputArgs& args) = 0;
  virtual void rms_norm_backward_weight(const RmsNormBackwardWeightArgs& args) = 0;
  virtual void rms_norm_backward(const RmsNormBackwardArgs& args) = 0;

  virtual void rope(const RopeArgs& args) = 0;
  virtual void attention(const AttentionArgs& args) = 0;
  virtual void attention_backward(const AttentionBackwardArgs& args) = 0;
  virtual void merge_attention(const MergeAttentionArgs& args) = 0;
  virtual void gelu(const GeluArgs& args) = 0;
  virtual void gelu_backward(const GeluBackwardArgs& args) = 0;
  virtual void swiglu(const SwigluArgs& args) = 0;
  virtual void swiglu_backward(const SwigluBackwardArgs& args) = 0;

  virtual void row_exp(const RowExpArgs& args) = 0;
  virtual void rescale_sums(const RescaleSumsArgs& args) = 0;
  virtual void cross_entropy(const CrossEntropyArgs& args) = 0;
  virtual void cross_entropy_backward(const CrossEntropyBackwardArgs& args) = 0;

  virtual void sum_of_squares(Tensor x, Tensor sum) = 0;  // sum (float64 [1]) += sum x^2, formed in float64
  virtual void gradient_factor(const GradientFactorArgs& args) = 0;
  virtual void adamw(const AdamWArgs& args) = 0;

  virtual void expert_slots(const ExpertSlotsArgs& args) = 0;
  virtual void permute_to_experts(const PermuteToExpertsArgs& args) = 0;
  virtual void combine_experts(const CombineExpertsArgs& args) = 0;
  virtual void combine_experts_backward(const CombineExpertsBackwardArgs& args) = 0;
  virtual void grouped_matmul(const GroupedMatmulArgs& args) = 0;
  virtual void grouped_matmul_backward_weight(const GroupedMatmulBackwardWeightArgs& args) = 0;

  virtual void upload(Tensor out,
                      const void* host) = 0;        // host memory of the same dtype and size; done when it returns
  virtual void download(void* host, Tensor x) = 0;  // likewise, after everything enqueued before

  /// False for backends that compute no numbers: what is uploaded there need not be formed.
  [[nodiscard]] virtual bool has_numbers() const { return true; }

  /// Where the host may read and write x in place, after publish(); null where the backend's memory is not the host's.
  [[nodiscard]] virtual std::byte* host_address(const Tensor& /*x*/) const { return nullptr; }

  /// What was enqueued is visible to a communication that is started next, and to the host.
  virtual void publish() = 0;

  /// Blocks the host until what was enqueued has run: for whoever times operations. Backends that run them in the call
  /// have nothing to do.
  virtual void finish() {}
};

}  // namespace echelon
