// Attention's gradients in tensor cores (Dao 2023, arXiv:2307.08691; formulas: attention_general_backward.cu). The
// first kernel has blocks for queries (attention_mma_dq.h), and writes their delta. The second has blocks for keys
// (attention_mma_dk_dv.h). So scores are computed twice: seven matmuls in place of five, but no sum is shared by
// blocks. There are no atomics and no float32 scratch, and the bits are the same every time.
#include "cuda/device/launch.h"
#include "cuda/ops/attention.h"
#include "cuda/ops/attention_mma_dk_dv.h"
#include "cuda/ops/attention_mma_dq.h"
#include "cuda/ops/numbers.h"

namespace echelon::cuda {
namespace {

using namespace fragments;

template <class Keys_, class Queries_>
struct Width {
  using Keys = Keys_;
  using Queries = Queries_;
  static constexpr std::int64_t shared_bytes =
      Keys::shared_bytes > Queries::shared_bytes ? Keys::shared_bytes : Queries::shared_bytes;
};
using Width64 = Width<KeyBlocks<64, 2, 4, 32>, QueryBlocks<64, 2, 4, 32>>;
using Width128 = Width<KeyBlocks<128, 1, 8, 64>, QueryBlocks<128, 1, 8, 64>>;
using Width128InSmallTiles = Width<KeyBlocks<128, 1, 8, 32>, QueryBlocks<128, 1, 8, 32>>;  // in 97 KiB of shared memory

/// Calls f with the kernels for heads of C; false, if there are none for which a block may have the shared memory.
template <class F>
bool visit_width(std::int64_t C, std::int64_t most_shared_bytes, F&& f) {
  const auto visit = [&]<class W>(W width) {
    if (C > W::Keys::C || W::shared_bytes > most_shared_bytes) return false;
    f(width);
    return true;
  };
  return visit(Width64()) || visit(Width128()) || visit(Width128InSmallTiles());
}

template <Bounds bounds, class Keys, class Queries>
void start(Width<Keys, Queries> /*width*/, const AttentionGradients& of, cudaStream_t stream) {
  const AttentionSizes& sizes = of.sizes;
  launch({.num_blocks = blocks_for(sizes.Tq, Queries::queries),
          .num_threads = Queries::num_threads,
          .num_blocks_y = sizes.H,
          .num_blocks_z = sizes.B,
          .shared_bytes = Queries::shared_bytes,
          .stream = stream},
         dq_kernel<Queries, bounds>, of);
  launch({.num_blocks = blocks_for(sizes.Tk, Keys::keys),
          .num_threads = Keys::num_threads,
          .num_blocks_y = sizes.K,
          .num_blocks_z = sizes.B,
          .shared_bytes = Keys::shared_bytes,
          .stream = stream},
         dk_dv_kernel<Keys, bounds>, of);
}

}  // namespace

bool mma_attention_backward(const AttentionBackwardArgs& args, std::int64_t most_shared_bytes, cudaStream_t stream) {
  const AttentionSizes sizes = sizes_of(args);
  if (args.q.dtype != DType::bfloat16 || sizes.C % chunk_size != 0 || args.soft_cap > 0) return false;
  const auto scale = static_cast<float>(args.scale);
  const AttentionGradients of = {numbers<bfloat16>(args.q),
                                 numbers<bfloat16>(args.k),
                                 numbers<bfloat16>(args.v),
                                 numbers<bfloat16>(args.out),
                                 numbers<bfloat16>(args.dout),
                                 numbers<float>(args.lse),
                                 numbers<float>(args.delta),
                                 numbers<bfloat16>(args.dq),
                                 numbers<bfloat16>(args.dk),
                                 numbers<bfloat16>(args.dv),
                                 scale,
                                 scale * log2_e,
                                 sizes};
  return visit_width(sizes.C, most_shared_bytes, [&](auto width) {
    if (sizes.ends == nullptr)
      start<Bounds::begins>(width, of, stream);
    else
      start<Bounds::begins_and_ends>(width, of, stream);
  });
}

std::int64_t widest_mma_head_backward(std::int64_t most_shared_bytes) {
  std::int64_t widest = 0;
  for (const std::int64_t C : {64, 128})
    if (visit_width(C, most_shared_bytes, [](auto /*width*/) {})) widest = C;
  return widest;
}

}  // namespace echelon::cuda
