// Attention: the choice of its kernels.
#include "cuda/ops/attention.h"

#include "base/error.h"
#include "base/text/counted.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/cudnn_attention.h"

#include <type_traits>

namespace echelon::cuda {

namespace {

template <class Args>
AttentionShape shape_of(const Args& args, bool is_backward) {
  return {is_backward,    args.q.size(0), args.q.size(1), args.k.size(1),           args.q.size(2),
          args.k.size(2), args.q.size(3), args.q.dtype,   args.mask.begin.exists(), args.mask.shape};
}

/// What is seen, where that is not the causal mask of all queries and keys.
std::string seen_words(const AttentionShape& shape) {
  const MaskShape& seen = shape.of_ranges;
  if (!shape.has_ranges) return {};
  if (seen.kind == MaskShape::Kind::ranges) return ", by ranges";
  if (seen.first_query == 0 && seen.end_key == shape.Tk && seen.kind == MaskShape::Kind::causal) return {};
  return fmt::format(", {} see {}{}", counted(shape.Tq - seen.first_query, "query"), counted(seen.end_key, "key"),
                     seen.kind == MaskShape::Kind::causal ? " causally" : "");
}

constexpr std::string_view in_tensor_cores = "our kernels for tensor cores", in_general = "our general kernels";

}  // namespace

template <class Args>
bool CudaOps::attention_by_cudnn(const Args& args, cudaStream_t lane, AttentionKernelsUsed& used) {
  used = {};
  if (!cudnn_) return false;
  CudnnAnswer answer;
  if (args.soft_cap > 0) {
    static const std::string no_soft_cap = "Echelon makes no plan of it with soft caps of scores";
    answer.refusal = &no_soft_cap;
  } else if constexpr (std::is_same_v<Args, AttentionBackwardArgs>)
    answer = cudnn_->attention_backward(args, lane);
  else
    answer = cudnn_->attention(args, lane);
  used.num_at_once = answer.num_sequences;
  used.cudnn_refusal = answer.refusal;
  require(answer.num_sequences > 0 || options_.cudnn != CudnnUse::always,
          "training.attention = cudnn, but cuDNN does not compute {} x {} queries and {} keys: {} (use auto)",
          args.q.size(0), args.q.size(1), args.k.size(1), answer.refusal == nullptr ? "" : *answer.refusal);
  return answer.num_sequences > 0;
}

// cuDNN may take the sequences one by one.
void CudaOps::compute(const AttentionArgs& args) {
  const cudaStream_t lane = stream(args.q.size(0));
  AttentionKernelsUsed& used = used_[shape_of(args, false)];
  if (attention_by_cudnn(args, lane, used)) return;
  if (mma_attention(args, device_.most_shared_bytes(), lane)) {
    used.ours = in_tensor_cores;
  } else {
    general_attention(args, lane);
    used.ours = in_general;
  }
}

void CudaOps::compute(const AttentionBackwardArgs& args) {
  const cudaStream_t lane = stream(args.q.size(0));
  AttentionKernelsUsed& used = used_[shape_of(args, true)];
  if (attention_by_cudnn(args, lane, used)) return;
  if (mma_attention_backward(args, device_.most_shared_bytes(), lane)) {
    used.ours = in_tensor_cores;
  } else {
    general_attention_backward(args, lane);
    used.ours = in_general;
  }
}

std::string CudaOps::attention_kernels() const {
  const std::string ours =
      fmt::format("our kernels, in tensor cores for bfloat16 heads up to {}, their gradients up to {}",
                  widest_mma_head(device_.most_shared_bytes()), widest_mma_head_backward(device_.most_shared_bytes()));
  if (!cudnn_) return fmt::format("attention by {} ({})", ours, no_cudnn_);
  return fmt::format("attention by {} where it has a plan, else by {}", cudnn_->name(), ours);
}

std::string CudaOps::attention_choices() const {
  const auto words_for = [&](const AttentionShape& shape, const AttentionKernelsUsed& used) {
    if (used.cudnn_refusal != nullptr) return fmt::format("{}, because cuDNN: {}", used.ours, *used.cudnn_refusal);
    if (used.num_at_once == 0) return std::string(used.ours);
    return used.num_at_once == shape.B
               ? cudnn_->name()
               : fmt::format("{}, {} of {} sequences at once", cudnn_->name(), used.num_at_once, shape.B);
  };
  std::string lines;
  for (const auto& [shape, used] : used_)
    lines += fmt::format("{}attention{} of {} x {} and {}, {} of {} and {} in {}{}: {}", lines.empty() ? "" : "\n",
                         shape.is_backward ? "'s gradients" : "", shape.B, counted(shape.Tq, "query"),
                         counted(shape.Tk, "key"), counted(shape.H, "head"), shape.C, counted(shape.K, "kv head"),
                         name_of(shape.dtype), seen_words(shape), words_for(shape, used));
  return lines;
}

}  // namespace echelon::cuda
