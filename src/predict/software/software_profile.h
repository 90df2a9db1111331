// What other software than Echelon does with the same layout: a named rewriting of a trace, for runs that were
// published. `echelon` and `ideal` are the identity: the first at the rates that software was measured to reach, the
// second at those of the machine file. docs/results/accuracy.md lists the profiles, what each rewrites, and every
// constant.
#pragma once

#include "blueprint/call_trace.h"
#include "predict/software/key_shares.h"
#include "predict/software/overlap.h"
#include "spec/config/run_config.h"
#include "spec/machine/machine_spec.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// What kernels of a software generation reach, as shares of what the machine's file says that the best do: matmuls,
/// attention, memory, links. So one set serves all GPUs. Fitted (benchmarks/accuracy/fit); everything else is counted.
struct Calibration {
  double matmul_share = 0.875;
  double attention_share = 0.733;
  double memory_share = 0.916;
  double link_share = 0.892;
  double network_share = 0.516;
  double launch_seconds = 5.5e-5;           // of the host, to issue a kernel
  double collective_launch_seconds = 5e-5;  // likewise a collective or a message
};

enum class AttentionKernel : std::uint8_t {
  fused,    // one kernel that never writes the scores (FlashAttention)
  unfused,  // matmuls and a softmax over scores that are written and read again
};

/// How context-parallel ranks get the keys and values of each other.
enum class KeyGathering : std::uint8_t {
  none,     // a ring: block by block, while the one before is attended to
  early,    // all at once, while the own block is attended to
  awaited,  // all at once, before any is attended to
};

struct SoftwareProfile {
  std::string name = "ideal";
  std::string generation;      // whose shares of rates it has; empty: those that all software has in common
  bool is_echelon = true;      // what is computed, communicated and kept is Echelon's
  bool borrows_rates = false;  // Echelon at the rates of the generation

  // What is computed.
  AttentionKernel attention = AttentionKernel::fused;
  bool attends_by_warpgroups = false;  // fused attention uses Hopper's instructions
  bool attends_in_triton = false;      // fused attention is the older kernel in Triton, with ALiBi
  bool has_dropout = false;            // of attention's probabilities and of both branches
  bool has_biases = true;              // added by the matmuls' epilogues; their gradients are separate kernels
  bool has_positions = true;           // a table that is added
  bool fuses_qkv = true;               // one matmul for q, k and v
  // Read and written per token and column of the width by what is not fused, in a block's forward; twice that in
  // backward.
  double eager_bytes = 0;
  bool reruns_whole_blocks = true;  // recomputation runs a block's forward to its end
  bool computes_in_fp8 = false;     // matmuls of blocks
  bool gathers_in_fp8 = false;      // then what tensor parallelism gathers for them has been cast before
  bool casts_tokens_once = false;   // for all matmuls that read them, and weights once a step
  double fp8_speedup = 1.77;        // of matmuls in 8 bits over those in 16
  double logit_bytes = 40;          // read and written per logit by the loss, forward and backward
  int loss_kernels = 1;             // of which that is made, masks and means included
  // Read and written per parameter by an update, in addition to what Echelon's reads and writes.
  double optimizer_bytes = 26;
  // Read and written per score by scale, mask and softmax where attention is not fused.
  std::int64_t softmax_bytes = 3;
  std::int64_t softmax_backward_bytes = 6;  // likewise, backward
  // Read and written per parameter to add a microbatch to the gradients of the others.
  std::int64_t accumulation_bytes = 6;
  // The matmuls of weight gradients add to the gradients of other microbatches themselves, in 32 bits.
  bool accumulates_in_matmuls = false;
  bool gathers_each_parameter = false;  // ZeRO-3: a collective for every parameter, not for every block

  // Pairs (query, key) over those of whole sequences, that documents leave to the slowest rank of a context group.
  double attention_share = 1;
  double pairs_share = 1;     // likewise, of all ranks together: what flops count
  KeyShares key_shares = {};  // likewise rows of keys; other software sends all

  // What is communicated.
  KeyGathering key_gathering = KeyGathering::none;
  bool repeats_kv_heads = false;      // keys and values are sent once for every query head that reads them
  bool rounds_key_gradients = false;  // those that go round in the ring have the format of the keys
  // Asynchronous tensor parallelism: gathers run during the matmuls that read them.
  bool gathers_during_matmuls = false;
  OverlapRules overlap = {};
  HostRules host = {};
  // Gradients are reduced once all backward passes are over, not block by block during them.
  bool reduces_at_the_end = false;
  // Each tensor-parallel rank sends its part, which is gathered afterwards (SC21, section 4.1).
  bool scatters_transfers = true;

  std::optional<Calibration> calibration = {};  // instead of the table's, while constants are fitted

  // What is kept.
  std::int64_t framework_bytes = 0;  // CUDA context, libraries' workspaces and communication buffers
  // DeepSpeed: gradients of the owned part in 32 bits in addition to those in the weights' format.
  bool keeps_wide_gradients = false;
  // PyTorch's loss over a sharded vocabulary, operation by operation.
  bool shards_loss_eagerly = false;
  bool compiles_loss = false;  // of a vocabulary that is not sharded: no copy of the logits in 32 bits
  // FSDP with a pipeline reduces with the last microbatch: until then a stage's gradients are added up whole, in 32
  // bits.
  bool adds_whole_gradients = false;
  // Of all microbatches until the step ends: between stages, and the logits of the last.
  bool keeps_outputs = false;
  double fragmentation = 1.0;  // of what is allocated and freed in a step: reserved over used
};

/// "megatron-2021", or with settings after it: "torchtitan-compile+fp8". Throws Error with a value to use.
[[nodiscard]] SoftwareProfile software_profile(std::string_view name);
[[nodiscard]] std::vector<std::string> software_profile_names();

/// Echelon's own operations, order, overlap and bytes at the rates that this profile's software reaches: what a plan is
/// timed with. `echelon` and `ideal` stay as they are.
[[nodiscard]] SoftwareProfile rates_of_profile(const SoftwareProfile& profile);

/// The machine with what the profile's software reaches on it. Borrowed rates never exceed those of the machine file,
/// and devices whose matmuls were measured, and hosts, keep their own.
[[nodiscard]] MachineSpec calibrated(const SoftwareProfile& profile, MachineSpec machine);
[[nodiscard]] Calibration calibration_of(const SoftwareProfile& profile);
/// Whether the generation differs from what all software has in common.
[[nodiscard]] bool has_own_calibration(const SoftwareProfile& profile);
/// Whose rates a prediction has: "the rates that megatron-core reaches".
[[nodiscard]] std::string rates_text(const SoftwareProfile& profile, const MachineSpec& machine);
/// A constant of a calibration by its name; null if there is none.
[[nodiscard]] double* constant(Calibration& calibration, std::string_view name);

/// What the software computes and sends instead of `trace`, the trace of `action`.
[[nodiscard]] CallTrace rewritten(const SoftwareProfile& profile, const RunConfig& config, const Action& action,
                                  const CallTrace& trace);

}  // namespace echelon
