// The list of operations, and one operation as a value.
//
// The list is the only one: the kinds, the named calls of Ops, the overloads of every backend and the functions of
// ops/description.h are declared from it. CONTRIBUTING.md says how an operation is added.
#pragma once

#include "ops/operations/activations.h"
#include "ops/operations/attention.h"
#include "ops/operations/cross_entropy.h"
#include "ops/operations/elementwise.h"
#include "ops/operations/embedding.h"
#include "ops/operations/head_exchange.h"
#include "ops/operations/latent_attention.h"
#include "ops/operations/layer_norm.h"
#include "ops/operations/matmul.h"
#include "ops/operations/mixture/balance.h"
#include "ops/operations/mixture/capacity.h"
#include "ops/operations/mixture/experts.h"
#include "ops/operations/mixture/grouped_matmul.h"
#include "ops/operations/mixture/router.h"
#include "ops/operations/optimizer.h"
#include "ops/operations/rms_norm.h"
#include "ops/operations/rope.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <type_traits>

/// X(name, arguments) for every operation, in the order of OpKind.
#define ECHELON_OPERATIONS(X)                                \
  X(matmul, MatmulArgs)                                      \
  X(add_bias, AddBiasArgs)                                   \
  X(bias_backward, BiasBackwardArgs)                         \
  X(add, AddArgs)                                            \
  X(copy, CopyArgs)                                          \
  X(fill, FillArgs)                                          \
  X(scale, ScaleArgs)                                        \
  X(soft_cap, SoftCapArgs)                                   \
  X(soft_cap_backward, SoftCapBackwardArgs)                  \
  X(clip, ClipArgs)                                          \
  X(clip_backward, ClipBackwardArgs)                         \
  X(embedding, EmbeddingArgs)                                \
  X(embedding_backward, EmbeddingBackwardArgs)               \
  X(add_positions, PositionsArgs)                            \
  X(positions_backward, PositionsBackwardArgs)               \
  X(layer_norm, LayerNormArgs)                               \
  X(layer_norm_backward_input, LayerNormBackwardInputArgs)   \
  X(layer_norm_backward_weight, LayerNormBackwardWeightArgs) \
  X(layer_norm_backward, LayerNormBackwardArgs)              \
  X(row_products, RowProductsArgs)                           \
  X(rms_norm, RmsNormArgs)                                   \
  X(rms_norm_backward_input, RmsNormBackwardInputArgs)       \
  X(rms_norm_backward_weight, RmsNormBackwardWeightArgs)     \
  X(rms_norm_backward, RmsNormBackwardArgs)                  \
  X(rope, RopeArgs)                                          \
  X(attention, AttentionArgs)                                \
  X(attention_backward, AttentionBackwardArgs)               \
  X(merge_attention, MergeAttentionArgs)                     \
  X(split_heads, SplitHeadsArgs)                             \
  X(join_heads, JoinHeadsArgs)                               \
  X(gather_rows, GatherRowsArgs)                             \
  X(expand_latents, ExpandLatentsArgs)                       \
  X(expand_latents_backward, ExpandLatentsBackwardArgs)      \
  X(resize_rows, ResizeRowsArgs)                             \
  X(gelu, GeluArgs)                                          \
  X(gelu_backward, GeluBackwardArgs)                         \
  X(swiglu, SwigluArgs)                                      \
  X(swiglu_backward, SwigluBackwardArgs)                     \
  X(row_exp, RowExpArgs)                                     \
  X(rescale_sums, RescaleSumsArgs)                           \
  X(cross_entropy, CrossEntropyArgs)                         \
  X(cross_entropy_backward, CrossEntropyBackwardArgs)        \
  X(sum_of_squares, SumOfSquaresArgs)                        \
  X(gradient_factor, GradientFactorArgs)                     \
  X(adamw, AdamWArgs)                                        \
  X(expert_slots, ExpertSlotsArgs)                           \
  X(arrived_slots, ArrivedSlotsArgs)                         \
  X(permute_to_experts, PermuteToExpertsArgs)                \
  X(combine_experts, CombineExpertsArgs)                     \
  X(combine_experts_backward, CombineExpertsBackwardArgs)    \
  X(choose_experts, ChooseExpertsArgs)                       \
  X(choose_experts_backward, ChooseExpertsBackwardArgs)      \
  X(limit_experts, LimitExpertsArgs)                         \
  X(count_experts, CountExpertsArgs)                         \
  X(router_losses, RouterLossesArgs)                         \
  X(balance_experts, BalanceExpertsArgs)                     \
  X(weight_rows, WeightRowsArgs)                             \
  X(weight_rows_backward, WeightRowsBackwardArgs)            \
  X(grouped_matmul, GroupedMatmulArgs)                       \
  X(grouped_matmul_backward_weight, GroupedMatmulBackwardWeightArgs)

namespace echelon {

/// For records and reports: every operation, and the transfers between the host and a backend.
#define ECHELON_KIND(name, Args) name,
enum class OpKind : std::uint8_t { ECHELON_OPERATIONS(ECHELON_KIND) upload, download };
#undef ECHELON_KIND

inline constexpr int num_op_kinds = static_cast<int>(OpKind::download) + 1;
[[nodiscard]] constexpr bool is_transfer(OpKind kind) { return kind == OpKind::upload || kind == OpKind::download; }

/// "matmul", "layer_norm_backward_input", ...
[[nodiscard]] std::string_view name_of(OpKind kind);

/// KindOf<MatmulArgs>::value is OpKind::matmul. Other types have no kind.
template <class Args>
struct KindOf;
#define ECHELON_KIND_OF(name, Args)               \
  template <>                                     \
  struct KindOf<Args> {                           \
    static constexpr OpKind value = OpKind::name; \
  };
ECHELON_OPERATIONS(ECHELON_KIND_OF)
#undef ECHELON_KIND_OF

/// f(std::type_identity<Args>()) with the arguments of an operation's kind, which may not be a transfer.
template <class F>
decltype(auto) visit_kind(OpKind kind, F&& f) {
  switch (kind) {
#define ECHELON_CASE(name, Args) \
  case OpKind::name: return f(std::type_identity<Args>());
    ECHELON_OPERATIONS(ECHELON_CASE)
#undef ECHELON_CASE
    case OpKind::upload:
    case OpKind::download: break;
  }
  std::abort();
}

/// Whether an operation is bound by its flops, because it multiplies matrices; else it is bound by its bytes.
[[nodiscard]] bool multiplies_matrices(OpKind kind);

/// An operation with its arguments. It refers to them and cannot be copied, so a call costs two words. It is valid
/// during the call. Code that needs it longer copies the arguments (ops/stored_operation.h).
class Operation {
 public:
  template <class Args, OpKind kind = KindOf<Args>::value>
  Operation(const Args& args) : kind_(kind), args_(&args) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  [[nodiscard]] OpKind kind() const { return kind_; }

  /// f(args). Compiles only if f accepts the arguments of every operation.
  template <class F>
  decltype(auto) visit(F&& f) const {
    return visit_kind(kind_, [&]<class Args>(std::type_identity<Args> /*type*/) -> decltype(auto) {
      return f(*static_cast<const Args*>(args_));
    });
  }
  /// Null if it is an operation of another kind.
  template <class Args>
  [[nodiscard]] const Args* get_if() const {
    return kind_ == KindOf<Args>::value ? static_cast<const Args*>(args_) : nullptr;
  }

 private:
  OpKind kind_;
  const void* args_;
};

}  // namespace echelon
