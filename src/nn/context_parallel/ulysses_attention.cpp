#include "nn/context_parallel/ulysses_attention.h"

#include "nn/context_parallel/head_exchange.h"

namespace echelon {
namespace {

class UlyssesAttention final : public KeyAttention {
 public:
  UlyssesAttention(const LayerOptions& options, std::unique_ptr<KeyAttention> of_heads)
      : exchange_(options), of_heads_(std::move(of_heads)) {}

  [[nodiscard]] Sizes lse_sizes(const Tensor& q) const override {
    const Sizes sizes = exchange_.sizes_by_heads(q);
    return {sizes[0], sizes[2], sizes[1]};
  }

  void forward(Context& context, const Qkv& qkv, const Attended& result) const override {
    const Stack::Scope scope(context.workspace);
    const Qkv by_heads = take(context.workspace, qkv);
    const Tensor out = take(context.workspace, result.out);
    exchange_.to_heads(context, {{qkv[0], by_heads[0]}, {qkv[1], by_heads[1]}, {qkv[2], by_heads[2]}});
    of_heads_->forward(context, by_heads, {out, result.lse});
    exchange_.to_tokens(context, {{result.out, out}});
  }

  void backward(Context& context, const Qkv& qkv, const AttendedGradient& gradient, const Qkv& dqkv) const override {
    const Stack::Scope scope(context.workspace);
    const auto& [of, dout, delta] = gradient;
    const Qkv by_heads = take(context.workspace, qkv), of_heads = take(context.workspace, dqkv);
    const AttendedGradient result = {
        .of = {take(context.workspace, of.out), of.lse}, .dout = take(context.workspace, dout), .delta = delta};
    exchange_.to_heads(context, {{qkv[0], by_heads[0]},
                                 {qkv[1], by_heads[1]},
                                 {qkv[2], by_heads[2]},
                                 {of.out, result.of.out},
                                 {dout, result.dout}});
    of_heads_->backward(context, by_heads, result, of_heads);
    exchange_.to_tokens(context, {{dqkv[0], of_heads[0]}, {dqkv[1], of_heads[1]}, {dqkv[2], of_heads[2]}});
  }

 private:
  [[nodiscard]] Tensor take(Stack& workspace, const Tensor& by_tokens) const {
    return workspace.take(by_tokens.dtype, exchange_.sizes_by_heads(by_tokens));
  }
  [[nodiscard]] Qkv take(Stack& workspace, const Qkv& by_tokens) const {
    return {take(workspace, by_tokens[0]), take(workspace, by_tokens[1]), take(workspace, by_tokens[2])};
  }

  HeadExchange exchange_;
  std::unique_ptr<KeyAttention> of_heads_;
};

}  // namespace

std::unique_ptr<KeyAttention> make_ulysses_attention(const LayerOptions& options,
                                                     std::unique_ptr<KeyAttention> of_heads) {
  return std::make_unique<UlyssesAttention>(options, std::move(of_heads));
}

}  // namespace echelon
