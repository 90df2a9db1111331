#include "verify/gradient/kv_parts.h"

#include "nn/head_split.h"

#include <algorithm>

namespace echelon {

void KvParts::compute(const AttentionBackwardArgs& args) {
  const auto bytes = [](const Tensor& x) { return aligned(x.num_elements() * size_of(x.dtype)); };
  const std::int64_t num_bytes =
      2 * bytes(args.q) + bytes(args.delta) + num_replicas_ * (bytes(args.dk) + bytes(args.dv));
  memory_ = std::make_unique<Arena>(num_bytes);
  Stack stack = memory_->region(0, num_bytes);
  AttentionBackwardArgs of_part = args;
  of_part.dout = stack.take(args.dout.dtype, args.dout.sizes);
  of_part.dq = stack.take(args.dq.dtype, args.dq.sizes);
  of_part.delta = stack.take(args.delta.dtype, args.delta.sizes);
  of_part.scratch = of_part.dq_sums = {};
  gradients_ = {Gradient{args.dk, {}}, Gradient{args.dv, {}}};
  for (int replica = 0; replica < num_replicas_; ++replica) {
    keep_heads(args.dout, replica, of_part.dout);
    for (Gradient& gradient : gradients_)
      gradient.parts.push_back(stack.take(gradient.whole.dtype, gradient.whole.sizes));
    of_part.dk = gradients_[0].parts.back();
    of_part.dv = gradients_[1].parts.back();
    ops_.attention_backward(of_part);
  }
}

void KvParts::keep_heads(const Tensor& dout_BTHC, int replica, const Tensor& out) const {
  const int tp = static_cast<int>(model_.num_key_value_heads) * num_replicas_;
  const HeadSplit split = head_split(model_, tp, replica);  // of the first kv head
  const std::int64_t H = dout_BTHC.size(2), group = H / model_.num_key_value_heads,
                     num_bytes = dout_BTHC.size(3) * size_of(dout_BTHC.dtype);
  std::vector<std::byte> heads(static_cast<std::size_t>(dout_BTHC.num_elements() * size_of(dout_BTHC.dtype)));
  ops_.download(heads.data(), dout_BTHC);
  for (std::int64_t i = 0; i < dout_BTHC.num_elements() / dout_BTHC.size(3); ++i) {
    const std::int64_t in_group = i % H % group - split.head_in_group;
    if (in_group < 0 || in_group >= split.num_heads)
      std::fill_n(heads.begin() + i * num_bytes, num_bytes, std::byte{0});
  }
  ops_.upload(out, heads.data());
}

void KvParts::turn(const RopeArgs& args) {
  for (const Gradient& gradient : gradients_) {
    if (gradient.whole.data == nullptr || args.x.data != gradient.whole.data) continue;
    RopeArgs of_part = args;
    for (const Tensor& part : gradient.parts) {
      of_part.x = of_part.y = part;
      ops_.rope(of_part);
    }
  }
}

std::optional<std::vector<double>> KvParts::of(const Tensor& gradient) const {
  const auto found = std::ranges::find(gradients_, gradient.data, [](const Gradient& each) { return each.whole.data; });
  if (gradient.data == nullptr || found == gradients_.end()) return std::nullopt;
  const std::int64_t num_columns = found->whole.size(2) * found->whole.size(3),
                     num_tokens = found->whole.num_elements() / num_columns;
  std::vector<double> all(static_cast<std::size_t>(num_tokens * num_replicas_ * num_columns));
  for (int replica = 0; replica < num_replicas_; ++replica) {
    const std::vector<double> part = downloaded(ops_, found->parts[static_cast<std::size_t>(replica)]);
    for (std::int64_t token = 0; token < num_tokens; ++token)
      std::copy_n(part.begin() + token * num_columns, num_columns,
                  all.begin() + (token * num_replicas_ + replica) * num_columns);
  }
  return all;
}

}  // namespace echelon
