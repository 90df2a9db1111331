// What a layer may use while it computes: the backend, the mesh, scratch memory, and the current microbatch. And the
// options that all layers of a rank share.
#pragma once

#include "comm/mesh.h"
#include "context/key_transfers.h"
#include "context/rank_tokens.h"
#include "nn/mixture/expert_loads.h"
#include "nn/mixture/router_state.h"
#include "nn/stash.h"
#include "ops/ops.h"
#include "spec/lora/lora.h"
#include "spec/model_spec.h"
#include "spec/recompute.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace echelon {

/// How many of the head's logits exist at a time. A chunk reads all of the head's weights twice and adds to all their
/// gradients. Below a thousand tokens its matmuls are bound by that traffic (docs/results/performance.md). max_bytes
/// bounds a chunk's logits and their gradients, for vocabularies whose chunks would be large next to the activations of
/// a layer. These values are for CPUs.
struct HeadChunk {
  std::int64_t max_tokens = 2048, max_bytes = std::int64_t{1} << 28;
  // Chunks have a multiple of this, the last one what is left; 1: they differ by one token at most.
  std::int64_t multiple = 1;
};

/// How many tokens the feed-forward branch computes at a time; 0: all. Chunks as those of the head.
struct MlpChunk {
  std::int64_t max_tokens = 0, multiple = 1;
};

/// What the kind of device decides, unless the config says it.
struct DeviceOptions {
  HeadChunk head_chunk;
  bool rounds_logits = false;            // the head's have `dtype`, not its accumulate_dtype
  std::int64_t vocabulary_multiple = 1;  // what the rows of the vocabulary's matrices on a rank are padded to
  bool gives_attention_scratch = false;  // to attention_backward: the device is faster with it
  bool gives_dq_sums = false;            // to attention_backward, where needs_dq_sums()
};

/// What the layers of one rank have in common, known when they are made.
struct LayerOptions {
  ModelSpec model;
  DType dtype = DType::float32;       // parameters and activations
  DType grad_dtype = DType::float32;  // gradients of parameters
  bool is_float8 = false;             // matmuls of linear layers: ops/float8.h
  LoraConfig lora = {};
  Recompute recompute = {};      // of a stage; of a block its operations
  MlpChunk mlp_chunk = {};       // of blocks that recompute `mlp`
  bool masks_documents = false;  // a token attends to its own document alone
  // The windows (ModelSpec::window_of) for which a microbatch has ranges of keys, and that of a block. A window as long
  // as the sequence is none (0), and 0 is among them only where whole sequences have ranges, too.
  std::vector<std::int64_t> windows = {};
  std::int64_t window = 0;
  bool has_rope = true;          // of a block, where the model has RoPE
  bool has_experts = false;      // of a block: MixtureSpec::is_in
  std::int64_t mixture_row = 0;  // of a block with experts: its row of RouterState
  RouterLosses router_losses = {};
  bool freezes_router = false, forces_balance = false;
  // Of experts: each rank has features of all of them, as of a dense branch; or of some, which are the ep_rank-th of
  // `ep` parts, it has the etp_rank-th of `etp` parts of the features, and rows are exchanged.
  bool divides_expert_features = false;
  int ep = 1, ep_rank = 0;
  int etp = 1, etp_rank = 0;
  // Of `ep` ranks, that share a node, over which rows go in two hops; 0: directly; 1: all tokens go to all ranks, `etp`
  // for each of the `ep` parts.
  int ep_on_node = 0;
  // Rows of a whole sequence that an expert takes in training, the first by weight or by position; 0: all.
  std::int64_t expert_capacity = 0;
  bool drops_by_score = false;
  double dispatch_bound = 1;  // rows that a rank takes in one round of an exchange, of those that it sends
  // Of all rows, the parts of the `ep` that a prediction assumes, the most loaded first
  // (spec/config/expert_load.h); empty: even ones. The second: of those that are kept within the capacity.
  std::vector<double> expert_shares = {}, kept_shares = {};

  std::int64_t num_sequences = 1;  // B: sequences of a microbatch
  std::int64_t seq_len = 1;        // T: tokens of a sequence on this rank
  // Where the ranks of a cp group hold different tokens of a sequence: T is then the rows that each has.
  std::shared_ptr<const RankTokens> tokens = nullptr;
  bool skips_unseen_keys = false;  // rows that no query sees do not travel; a plan has them all
  bool has_positions = false;      // that come with each microbatch; else those of `tokens`, or of whole sequences
  int tp = 1;
  int tp_rank = 0;
  bool sequence_parallel = false;  // between the tensor-parallel regions a rank holds B T / tp tokens

  DeviceOptions device = {};

  /// Which of the ranges of a microbatch are a block's: an index of `windows`; none: all keys before a query.
  [[nodiscard]] std::optional<std::size_t> window_index() const { return window_index(window); }
  [[nodiscard]] std::optional<std::size_t> window_index(std::int64_t of_block) const {
    for (const std::int64_t wanted : {of_block, std::int64_t{0}}) {
      const auto found = std::ranges::find(windows, wanted);
      if (found != windows.end()) return static_cast<std::size_t>(found - windows.begin());
    }
    return std::nullopt;
  }
  /// Tokens of a sequence on all ranks.
  [[nodiscard]] std::int64_t whole_seq_len() const { return tokens ? tokens->split.seq_len : seq_len; }
  // N, inside tensor-parallel regions.
  [[nodiscard]] std::int64_t num_tokens() const { return num_sequences * seq_len; }
  // Of x and y between layers.
  [[nodiscard]] std::int64_t num_local_tokens() const { return sequence_parallel ? num_tokens() / tp : num_tokens(); }
  /// That have all experts of a layer together, and exchange rows.
  [[nodiscard]] int num_expert_ranks() const { return ep * etp; }
};

/// What a rank has sent to experts on other ranks and back, the flops of matmuls on rows from them, and what was
/// planned of both.
struct ExpertTraffic {
  std::int64_t sent_bytes = 0, planned_sent_bytes = 0;
  // In two hops: across nodes or ranks of features, and the above inside of them. Of all tokens to all ranks: these.
  std::int64_t across_bytes = 0, planned_across_bytes = 0;
  std::int64_t flops = 0, planned_flops = 0;
  std::int64_t num_rounds = 0, num_exchanges = 0;  // of forward passes: their sum, and how many there were
  std::int64_t rows_again = 0;                     // that backward passes received and computed once more

  ExpertTraffic& operator+=(const ExpertTraffic& more) {
    sent_bytes += more.sent_bytes;
    planned_sent_bytes += more.planned_sent_bytes;
    across_bytes += more.across_bytes;
    planned_across_bytes += more.planned_across_bytes;
    flops += more.flops;
    planned_flops += more.planned_flops;
    num_rounds += more.num_rounds;
    num_exchanges += more.num_exchanges;
    rows_again += more.rows_again;
    return *this;
  }
};

/// The tokens that one pass through the model is about. loss_sum is added to.
struct Microbatch {
  Tensor tokens;   // int32 [B T], whole on every rank
  Tensor targets;  // int32 [B T]; ignored_target where nothing is predicted
  // int32 [blocks, B, queries] (context/key_blocks.h): for every query, of each block of keys, the first key that it
  // sees and the one after the last. key_begin is [windows, blocks, B, queries], and empty where every range starts
  // with the first key; key_end is empty where the mask is causal.
  Tensor key_begin = {}, key_end = {};
  // What the host knows of these ranges in all sequences: [windows, blocks], or empty.
  std::span<const MaskShape> mask_shapes = {};
  // Of rows that are gathered from n ranks, int32, or empty: the row [n, B, T] of each in ascending order of positions
  // [B, rows], and its inverse; -1 is padding.
  Tensor rows_by_position = {}, rows_by_rank = {};
  Tensor positions = {};  // int32 [B T], of LayerOptions::has_positions
  // int32 [B T]: 0 for padding, which has no experts; else 1 + b times the length of a whole sequence + the position in
  // it, of the b-th one. Empty: there is no padding.
  Tensor places = {};
  // [windows, B], of LayerOptions::skips_unseen_keys; empty: all rows travel.
  std::span<const KeyTransfers> key_transfers = {};
  Tensor loss_sum;              // float64 [1]: sum of the losses of valid targets, in nats
  double gradient_scale = 1.0;  // of the gradient of the loss sum: 1 / expected valid targets of the global batch
  Tensor loss_scale = {};       // float64 [1], or left out: another factor of it, of the current step
  RouterState router = {};
  std::span<ExpertTraffic> expert_traffic = {};  // of the layers with experts; empty: not counted
  ExpertLoads* expert_loads = nullptr;  // what a run adds to and a trace reads; null: a trace has the planned ones
  bool needs_gradient = false;          // a backward pass follows, and computes the loss; without one, forward does
};

/// Of a trace: calls that would record the same again are recorded once and copied. A ring has thousands of records,
/// and a unit's passes go around it several times.
class RepeatedCalls {
 public:
  /// Whatever decides what a call computes, sends and takes, of calls of one rank of a run.
  using Key = std::vector<std::int64_t>;

  virtual ~RepeatedCalls() = default;
  virtual void make(const Key& key, Stack& workspace, const std::function<void()>& call) = 0;
};

struct Context {
  Ops& ops;
  Mesh& mesh;
  Stack& workspace;  // scratch for the length of a call: take within a Stack::Scope
  Microbatch microbatch;
  RepeatedCalls* repeated = nullptr;  // null: every call is made
  bool is_backward = false;           // a pass after forward, which has left largest magnitudes
};

}  // namespace echelon
