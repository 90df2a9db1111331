#include "engine/sample_operation.h"

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

class SampleMaker {
 public:
  SampleMaker(const OperationSize& size, Stack& memory) : s_(size), memory_(memory) {}

  Operation operation() {
    switch (s_.kind) {
      case OpKind::matmul:
        return MatmulArgs{.a = x({s_.m, s_.k}), .b = x({s_.n, s_.k}), .c = x({s_.m, s_.n}), .transpose_b = true};
      case OpKind::add_bias: return AddBiasArgs{rows(), x({s_.n})};
      case OpKind::bias_backward: return BiasBackwardArgs{rows(), sums({s_.n})};
      case OpKind::add: return AddArgs{x({s_.m}), x({s_.m}), x({s_.m})};
      case OpKind::copy: return CopyArgs{x({s_.m}), x({s_.m})};
      case OpKind::fill: return FillArgs{x({s_.m}), 0.5};
      case OpKind::scale: return ScaleArgs{x({s_.m}), 1.0};
      case OpKind::embedding:
        return EmbeddingArgs{.tokens = tokens(table_rows), .w = x({table_rows, s_.n}), .y = rows()};
      case OpKind::embedding_backward:
        return EmbeddingBackwardArgs{.tokens = tokens(table_rows), .dy = rows(), .dw = sums({table_rows, s_.n})};
      case OpKind::add_positions: return PositionsArgs{.w = x({seq_len(), s_.n}), .y = rows(), .seq_len = seq_len()};
      case OpKind::positions_backward:
        return PositionsBackwardArgs{.dy = rows(), .dw = sums({seq_len(), s_.n}), .seq_len = seq_len()};
      case OpKind::layer_norm:
        return LayerNormArgs{.x = rows(),
                             .w = x({s_.n}),
                             .b = x({s_.n}),
                             .y = rows(),
                             .mean = statistics(),
                             .rstd = statistics(),
                             .residual = rows()};
      case OpKind::layer_norm_backward_input:
        return LayerNormBackwardInputArgs{.dy = rows(),
                                          .x = rows(),
                                          .w = x({s_.n}),
                                          .mean = statistics(),
                                          .rstd = statistics(),
                                          .dx = rows(),
                                          .dresidual = rows()};
      case OpKind::layer_norm_backward_weight:
        return LayerNormBackwardWeightArgs{.dy = rows(),
                                           .x = rows(),
                                           .mean = statistics(),
                                           .rstd = statistics(),
                                           .dw = sums({s_.n}),
                                           .db = sums({s_.n})};
      case OpKind::layer_norm_backward:
        return LayerNormBackwardArgs{.dy = rows(),
                                     .x = rows(),
                                     .w = x({s_.n}),
                                     .mean = statistics(),
                                     .rstd = statistics(),
                                     .dx = rows(),
                                     .dw = sums({s_.n}),
                                     .db = sums({s_.n}),
                                     .dresidual = rows()};
      case OpKind::rms_norm:
        return RmsNormArgs{.x = rows(), .w = x({s_.n}), .y = rows(), .rstd = statistics(), .residual = rows()};
      case OpKind::rms_norm_backward_input:
        return RmsNormBackwardInputArgs{
            .dy = rows(), .x = rows(), .w = x({s_.n}), .rstd = statistics(), .dx = rows(), .dresidual = rows()};
      case OpKind::rms_norm_backward_weight:
        return RmsNormBackwardWeightArgs{.dy = rows(), .x = rows(), .rstd = statistics(), .dw = sums({s_.n})};
      case OpKind::rms_norm_backward:
        return RmsNormBackwardArgs{.dy = rows(),
                                   .x = rows(),
                                   .w = x({s_.n}),
                                   .rstd = statistics(),
                                   .dx = rows(),
                                   .dw = sums({s_.n}),
                                   .dresidual = rows()};
      case OpKind::rope: return rope();
      case OpKind::attention: return attention();
      case OpKind::attention_backward: return attention_backward();
      case OpKind::merge_attention:
        return MergeAttentionArgs{
            .out = rows_of_heads(), .lse = statistics(), .part = rows_of_heads(), .part_lse = statistics()};
      case OpKind::gelu: return GeluArgs{.x = rows(), .y = rows(), .bias = x({s_.n})};
      case OpKind::gelu_backward: {
        const Tensor dy = rows(), h = rows();
        return GeluBackwardArgs{.dy = dy, .x = h, .dx = h, .bias = x({s_.n}), .dbias = sums({s_.n}), .y = dy};
      }
      case OpKind::swiglu: return SwigluArgs{.gate = x({s_.m}), .up = x({s_.m}), .y = x({s_.m})};
      case OpKind::swiglu_backward: {
        const Tensor dy = x({s_.m}), gate = x({s_.m}), up = x({s_.m});
        return SwigluBackwardArgs{.dy = dy, .gate = gate, .up = up, .dgate = gate, .dup = up, .y = dy};
      }
      case OpKind::row_exp:
        return RowExpArgs{.logits = rows(),
                          .targets = tokens(s_.n),
                          .max = a({s_.m}),
                          .sum = a({s_.m}),
                          .target_logit = a({s_.m}),
                          .valid_columns = s_.n};
      case OpKind::rescale_sums: return RescaleSumsArgs{.sum = a({s_.m}), .max = a({s_.m}), .row_max = a({s_.m})};
      case OpKind::cross_entropy:
        return CrossEntropyArgs{.max = a({s_.m}),
                                .sum = a({s_.m}),
                                .target_logit = a({s_.m}),
                                .targets = tokens(1),
                                .lse = a({s_.m}),
                                .loss_sum = sum()};
      case OpKind::cross_entropy_backward:
        return CrossEntropyBackwardArgs{.exps = a({s_.m, s_.n}),
                                        .max = a({s_.m}),
                                        .lse = a({s_.m}),
                                        .targets = tokens(s_.n),
                                        .dlogits = rows(),
                                        .valid_columns = s_.n};
      case OpKind::sum_of_squares: return SumOfSquaresArgs{x({s_.m}), sum()};
      case OpKind::gradient_factor:
        return GradientFactorArgs{.sum_of_squares = sum(),
                                  .num_targets = sum(),
                                  .norm = sum(),
                                  .factor = sum(),
                                  .expected_targets = 1,
                                  .max_norm = 1};
      case OpKind::adamw: return adamw();
      case OpKind::expert_slots:
        return ExpertSlotsArgs{
            .experts = tokens(num_experts).reshaped({s_.m, 1}), .slots = slots(s_.m, 1), .offsets = offsets()};
      case OpKind::permute_to_experts:
        return PermuteToExpertsArgs{.x = rows_of_tokens(), .slots = slots(num_tokens(), k()), .y = rows()};
      case OpKind::combine_experts:
        return CombineExpertsArgs{
            .y = rows(), .slots = slots(num_tokens(), k()), .out = rows_of_tokens(), .weights = a({num_tokens(), k()})};
      case OpKind::combine_experts_backward: {
        const Tensor y = rows();
        return CombineExpertsBackwardArgs{.dout = rows_of_tokens(),
                                          .y = y,
                                          .slots = slots(num_tokens(), k()),
                                          .weights = a({num_tokens(), k()}),
                                          .dy = y,
                                          .dweights = a({num_tokens(), k()})};
      }
      case OpKind::grouped_matmul:
        return GroupedMatmulArgs{.a = x({s_.m, s_.k}),
                                 .w = x({num_experts, s_.n, s_.k}),
                                 .offsets = offsets(s_.m),
                                 .c = x({s_.m, s_.n}),
                                 .transpose_w = true};
      case OpKind::grouped_matmul_backward_weight:
        return GroupedMatmulBackwardWeightArgs{.dy = x({s_.k, s_.m}),
                                               .x = x({s_.k, s_.n}),
                                               .offsets = offsets(s_.k),
                                               .dw = sums({num_experts, s_.m, s_.n})};
      case OpKind::upload: {
        const Tensor host = x({s_.m});
        return UploadArgs{x({s_.m}), host.data};
      }
      case OpKind::download: {
        const Tensor host = x({s_.m});
        return DownloadArgs{host.data, x({s_.m})};
      }
    }
    return {};
  }

 private:
  static constexpr std::int64_t table_rows = 512, num_experts = 8;

  [[nodiscard]] Tensor filled(DType dtype, Sizes sizes) {
    const Tensor t = memory_.take(dtype, sizes);
    if (t.data == nullptr) return t;
    const auto set = [&](auto number) { std::fill_n(t.as<decltype(number)>(), t.num_elements(), number); };
    switch (dtype) {
      case DType::float32: set(0.125F); break;
      case DType::float64: set(0.125); break;
      case DType::bfloat16: set(bfloat16(0.125F)); break;
      case DType::int32: set(std::int32_t{0}); break;
      case DType::int16: set(std::int16_t{0}); break;
      case DType::float16: set(float16(0.125F)); break;
    }
    return t;
  }
  [[nodiscard]] Tensor x(Sizes sizes) { return filled(s_.dtype, sizes); }
  [[nodiscard]] Tensor a(Sizes sizes) { return filled(accumulate_dtype(s_.dtype), sizes); }
  [[nodiscard]] Tensor sums(Sizes sizes) { return a(sizes); }  // of gradients of weights
  [[nodiscard]] Tensor rows() { return x({s_.m, s_.n}); }
  [[nodiscard]] Tensor rows_of_heads() { return x({1, s_.m, 1, s_.n}); }
  [[nodiscard]] Tensor statistics() { return a({s_.m}); }
  [[nodiscard]] Tensor sum() { return filled(DType::float64, {1}); }
  [[nodiscard]] std::int64_t seq_len() const { return std::min<std::int64_t>(s_.m, 256); }

  /// Some of each, as in a text.
  [[nodiscard]] Tensor tokens(std::int64_t bound) {
    const Tensor t = filled(DType::int32, {s_.m});
    for (std::int64_t i = 0; t.data != nullptr && i < s_.m; ++i)
      t.as<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7919 % bound);
    return t;
  }

  /// Tokens of two experts each, if the rows are even in number.
  [[nodiscard]] std::int64_t k() const { return s_.m % 2 == 0 ? 2 : 1; }
  [[nodiscard]] std::int64_t num_tokens() const { return s_.m / k(); }
  [[nodiscard]] Tensor rows_of_tokens() { return x({num_tokens(), s_.n}); }
  [[nodiscard]] Tensor slots(std::int64_t num_tokens, std::int64_t k) {
    const Tensor t = filled(DType::int32, {num_tokens, k});
    for (std::int64_t i = 0; t.data != nullptr && i < t.num_elements(); ++i)
      t.as<std::int32_t>()[i] = static_cast<std::int32_t>(i);
    return t;
  }
  /// All experts with as many rows.
  [[nodiscard]] Tensor offsets(std::int64_t num_rows = 0) {
    const Tensor t = filled(DType::int32, {num_experts + 1});
    for (std::int64_t e = 0; t.data != nullptr && e <= num_experts; ++e)
      t.as<std::int32_t>()[e] = static_cast<std::int32_t>(num_rows * e / num_experts);
    return t;
  }

  [[nodiscard]] Operation rope() {
    const std::int64_t C = s_.n, T = std::min<std::int64_t>(s_.m, 256), H = std::max<std::int64_t>(1, s_.m / T);
    const Tensor y = x({1, T, H, C});
    return RopeArgs{.x = y, .y = y, .cos = a({T, C / 2}), .sin = a({T, C / 2})};
  }
  /// As many queries as keys, of as many pairs as there are of a whole triangle.
  [[nodiscard]] std::int64_t queries() const {
    return std::max<std::int64_t>(1, std::llround((std::sqrt(8.0 * static_cast<double>(s_.n) + 1) - 1) / 2));
  }
  [[nodiscard]] Operation attention() {
    const std::int64_t T = queries(), H = s_.m, C = s_.k;
    return AttentionArgs{.q = x({1, T, H, C}),
                         .k = x({1, T, H, C}),
                         .v = x({1, T, H, C}),
                         .out = x({1, T, H, C}),
                         .lse = a({1, H, T}),
                         .scale = 1 / std::sqrt(static_cast<double>(C))};
  }
  [[nodiscard]] Operation attention_backward() {
    const std::int64_t T = queries(), H = s_.m, C = s_.k;
    const auto heads = [&] { return x({1, T, H, C}); };
    AttentionBackwardArgs args{.q = heads(),
                               .k = heads(),
                               .v = heads(),
                               .out = heads(),
                               .lse = a({1, H, T}),
                               .dout = heads(),
                               .dq = heads(),
                               .dk = heads(),
                               .dv = heads(),
                               .delta = a({1, H, T}),
                               .scale = 1 / std::sqrt(static_cast<double>(C))};
    if (args.lse.data == nullptr) return args;
    if (args.lse.dtype == DType::float64) std::fill_n(args.lse.as<double>(), args.lse.num_elements(), 5.0);
    if (args.lse.dtype == DType::float32) std::fill_n(args.lse.as<float>(), args.lse.num_elements(), 5.0F);
    return args;
  }
  [[nodiscard]] Operation adamw() {
    const Tensor master = a({s_.m}), param = accumulate_dtype(s_.dtype) == s_.dtype ? master : x({s_.m});
    return AdamWArgs{.param = param,
                     .master = master,
                     .grad = a({s_.m}),
                     .m = a({s_.m}),
                     .v = a({s_.m}),
                     .scalars = filled(DType::float64, {num_adamw_scalars}),
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .eps = 1e-8};
  }

  const OperationSize s_;
  Stack& memory_;
};

}  // namespace

Operation sample_operation(const OperationSize& size, Stack& memory) { return SampleMaker(size, memory).operation(); }

}  // namespace echelon
