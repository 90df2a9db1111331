// Attention: the choice of its kernels.
#include "cuda/ops/attention.h"

#include "base/error.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/cudnn_attention.h"

namespace echelon::cuda {

namespace {

/// `num_sequences` at once, of those that there are.
std::string words_for(const CudnnAttention& cudnn, std::int64_t num_sequences, std::int64_t batch) {
  return num_sequences == batch ? cudnn.name()
                                : fmt::format("{}, {} of {} sequences at once", cudnn.name(), num_sequences, batch);
}

template <class Args>
AttentionShape shape_of(const Args& args, bool is_backward) {
  return {is_backward,    args.q.size(0), args.q.size(1), args.k.size(1),
          args.q.size(2), args.k.size(2), args.q.size(3), args.q.dtype};
}

constexpr std::string_view in_tensor_cores = "our kernels for tensor cores", in_general = "our general kernels";

}  // namespace

// cuDNN may take the sequences one by one.
void CudaOps::compute(const AttentionArgs& args) {
  const cudaStream_t lane = stream(args.q.size(0));
  std::string& formed_by = formed_by_[shape_of(args, false)];
  if (const std::int64_t at_once = cudnn_ ? cudnn_->attention(args, lane) : 0; at_once > 0) {
    formed_by = words_for(*cudnn_, at_once, args.q.size(0));
  } else if (mma_attention(args, device_.most_shared_bytes(), lane)) {
    formed_by = in_tensor_cores;
  } else {
    general_attention(args, lane);
    formed_by = in_general;
  }
}

void CudaOps::compute(const AttentionBackwardArgs& args) {
  const cudaStream_t lane = stream(args.q.size(0));
  std::string& formed_by = formed_by_[shape_of(args, true)];
  if (const std::int64_t at_once = cudnn_ ? cudnn_->attention_backward(args, lane) : 0; at_once > 0) {
    formed_by = words_for(*cudnn_, at_once, args.q.size(0));
  } else if (mma_attention_backward(args, device_.most_shared_bytes(), lane)) {
    formed_by = in_tensor_cores;
  } else {
    general_attention_backward(args, lane);
    formed_by = in_general;
  }
}

std::string CudaOps::attention_kernels() const {
  const std::string ours =
      fmt::format("our kernels, in tensor cores for bfloat16 heads up to {}, their gradients up to {}",
                  widest_mma_head(device_.most_shared_bytes()), widest_mma_head_backward(device_.most_shared_bytes()));
  if (!cudnn_) return fmt::format("attention by {} ({})", ours, no_cudnn_);
  const std::string gradients =
      options_.deterministic
          ? " (gradients: if 2 bytes for each pair of a query and a key of its heads fit into 32 MiB)"
          : "";
  return fmt::format("attention by {} where it has a plan{}, else by {}", cudnn_->name(), gradients, ours);
}

std::string CudaOps::attention_choices() const {
  std::string lines;
  for (const auto& [shape, kernels] : formed_by_)
    lines += fmt::format("{}attention{} of {} x {} queries and {} keys, {} heads of {} and {} kv heads in {}: {}",
                         lines.empty() ? "" : "\n", shape.is_backward ? "'s gradients" : "", shape.B, shape.Tq,
                         shape.Tk, shape.H, shape.C, shape.K, name_of(shape.dtype), kernels);
  return lines;
}

}  // namespace echelon::cuda
