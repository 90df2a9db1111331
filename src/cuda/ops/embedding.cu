// Rows of tables: tokens and learned positions, and their gradients.
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/unfinished.h"

namespace echelon::cuda {

void CudaOps::embedding(const EmbeddingArgs&) { not_yet(); }
void CudaOps::embedding_backward(const EmbeddingBackwardArgs&) { not_yet(); }
void CudaOps::add_positions(const PositionsArgs&) { not_yet(); }
void CudaOps::positions_backward(const PositionsBackwardArgs&) { not_yet(); }

}  // namespace echelon::cuda
