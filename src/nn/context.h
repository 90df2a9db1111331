// What a layer may use while it computes: the backend, the mesh, scratch memory, and the microbatch at hand. And what
// all layers of a run have in common.
#pragma once

#include "comm/mesh.h"
#include "nn/stash.h"
#include "ops/ops.h"
#include "spec/model_spec.h"
#include "spec/recompute.h"

namespace echelon {

/// How many of the head's logits exist at a time. A chunk reads all of the head's weights twice and adds to all their
/// gradients: below a thousand tokens that, not arithmetic, is what its products wait for (docs/performance.md). The
/// second bound is of a chunk's logits and their gradients, for vocabularies whose chunks would be large beside the
/// activations of a layer. These values are those of processors.
struct HeadChunk {
  std::int64_t max_tokens = 2048, max_bytes = std::int64_t{1} << 28;
};

/// What the layers of one rank have in common, known when they are made.
struct LayerOptions {
  ModelSpec model;
  DType dtype = DType::float32;       // parameters and activations
  DType grad_dtype = DType::float32;  // gradients of parameters
  bool is_float8 = false;             // products of linear layers: ops/float8.h
  bool rounds_logits = false;         // the head's have `dtype`, not its accumulate_dtype
  HeadChunk head_chunk = {};
  std::int64_t vocabulary_multiple = 1;  // what the rows of the vocabulary's matrices on a rank are padded to
  std::int64_t num_sequences = 1;        // B: sequences of a microbatch
  std::int64_t seq_len = 1;              // T
  int tp = 1;
  int tp_rank = 0;
  bool sequence_parallel = false;        // between the tensor-parallel regions a rank holds B T / tp tokens
  Recompute recompute = {};              // of a stage; of a block its operations
  bool masks_documents = false;          // a token attends to its own document alone
  bool gives_attention_scratch = false;  // to attention_backward: the device is faster with it

  [[nodiscard]] std::int64_t num_tokens() const {
    return num_sequences * seq_len;
  }  // N, inside tensor-parallel regions
  [[nodiscard]] std::int64_t num_local_tokens() const {
    return sequence_parallel ? num_tokens() / tp : num_tokens();
  }  // of x and y between layers
};

/// The tokens that one pass through the model is about. loss_sum is added to.
struct Microbatch {
  Tensor tokens;                // int32 [B T], whole on every rank
  Tensor targets;               // int32 [B T]; ignored_target where nothing is predicted
  Tensor document_starts = {};  // int32 [B T]: for every token the position in its sequence at which its document
                                // begins; nothing if all are of one document
  Tensor loss_sum;              // float64 [1]: sum of the losses of valid targets, in nats
  double gradient_scale = 1.0;  // of the gradient of the loss sum: 1 / expected valid targets of the global batch
  Tensor loss_scale = {};       // float64 [1], or left out: another factor of it, of the step at hand
  bool wants_gradient = false;  // a backward pass follows, and forms the loss; without one, forward does
};

struct Context {
  Ops& ops;
  Mesh& mesh;
  Stack& workspace;  // scratch for the length of a call: take within a Stack::Scope
  Microbatch microbatch;
};

}  // namespace echelon
