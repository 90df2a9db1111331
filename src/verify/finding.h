// The cause of a difference between a layout and one rank: the kind of fault, its axis, the first tensor that shows it,
// and the evidence.
#pragma once

#include "verify/comparison.h"

#include <string>
#include <vector>

namespace echelon {

enum class FaultKind : std::uint8_t {
  unknown,
  missing_sum,            // an all-reduce or reduce-scatter was omitted
  repeated_sum,           // a sum was computed twice
  mean_for_sum,           // a sum was divided by its number of ranks
  mean_of_means,          // ranks or microbatches divide by their own number of targets
  lost_microbatches,      // only the gradient of the last or of some microbatches
  repeated_microbatches,  // microbatches are added more than once
  counted_twice,          // the gradient norm counts a parameter more than once
  not_counted,            // the gradient norm does not count a parameter
  stale_tied_weight,      // the second copy of a tied weight is not the first
  stale_weight,           // a copy that was not updated or not gathered
  wrong_boundary,         // elements on the wrong side of a boundary between shards or slices
  wrong_position,         // tokens have a wrong position
  missing_gather,         // a rank computes with its own part instead of the gathered tensor
  wrong_sequence,         // tokens have the values of another sequence
  wrong_message,          // a stage uses another microbatch's tensor
  // of context parallelism
  missing_block,    // a block of keys was left out: the keys, or the part of a gradient that it gives
  repeated_block,   // a block counts twice
  own_block_only,   // the gradients of keys and values have the part of the rank's own queries alone
  unmerged_parts,   // results of blocks were averaged or added instead of merged
  stale_block,      // the keys and values of the hop before, or of the heads before
  wrong_block,      // those of another rank
  stray_gradient,   // gradients of another rank's block
  one_replica,      // the gradients of keys and values that ranks share have the part of some of their query heads
  exchanged_heads,  // heads have the values of other heads
  wrong_ranges,     // the keys of a block are masked like those of another
  wrong_document,   // documents start at other positions
  visible_padding,  // queries see rows that are no tokens
  lost_target,      // targets are ignored
  wrong_target,     // targets are other tokens
  // of mixtures of experts
  wrong_choice,       // tokens chose other experts, with scores that differ by more than rounding
  repeated_counts,    // rows of experts count more than once
  lost_counts,        // or not at all
  wrong_counts,       // or for other experts
  wrong_router_loss,  // a loss that evens out the loads is of other tokens
  wrong_bias,         // the bias of the choice moved by other counts
  lost_rows,          // the output of a token lacks rows of its experts
  exchanged_rows,     // or has those of other tokens
};
[[nodiscard]] std::string_view name_of(FaultKind kind);  // "missing sum", "mean of means", ...

struct Finding {
  FaultKind kind = FaultKind::unknown;
  // "tp", "dp_replicate", "dp_shard", "cp", "pp", "microbatches", or several joined with +; empty: none explains it.
  std::string axis;
  std::string tensor;    // the first tensor that differs
  std::string where;     // which part of it, on which ranks, when
  std::string evidence;  // what the values are instead
};

/// The inputs of a diagnosis; all of them outlive it.
struct Case {
  const Blueprint& blueprint;  // of the layout
  const BatchSource& batches;
  const Interpose& interpose;
  const Reference& reference;
  std::vector<Difference> differences;  // in order; not empty
  RankResults results;                  // of the layout
  RankRouters routers;
  double tolerance = 1e-9;  // of reads of layers, relative to the largest magnitude in the tensor
  double precision = 1e-6;  // tolerance for rounding coefficients

  [[nodiscard]] const RunConfig& config() const { return blueprint.config(); }
  [[nodiscard]] const MeshShape& mesh() const { return blueprint.mesh(); }
};

/// An axis of the layout with more than one part, by the name that findings use.
struct LayoutAxis {
  std::string name;
  int degree = 1;
};
/// dp_replicate, dp_shard, both together if the layout has both, cp, dp_shard+cp (over which ZeRO shards), tp, pp,
/// microbatches.
[[nodiscard]] std::vector<LayoutAxis> axes_of(const RunConfig& config);
/// ep, etp where features are over ranks with rows of their own, and ep+etp.
[[nodiscard]] std::vector<LayoutAxis> axes_of_experts(const RunConfig& config);
/// The mesh axes over which parts of the batch are divided, with their names, and the set of those with more than one
/// rank: "dp_shard+cp".
inline constexpr std::pair<const char*, Axis> batch_axes[] = {
    {"dp_replicate", Axis::dp_replicate}, {"dp_shard", Axis::dp_shard}, {"cp", Axis::cp}};
/// The axes over which ZeRO shards.
[[nodiscard]] std::string shard_axes_of(const MeshShape& mesh);
/// True if `axis` is or contains `part`: "dp_replicate+dp_shard" has "dp_shard".
[[nodiscard]] bool has_axis(const std::string& axis, const std::string& part);

/// "all 8 ranks", "rank 3", "ranks 4, 5, 6, 7 (pp 1)": with the coordinates that only they share.
[[nodiscard]] std::string describe_ranks(const MeshShape& mesh, const std::vector<int>& ranks);
/// "elements 0 to 511 (rows 0 to 15) on ranks 0, 1"
[[nodiscard]] std::string describe_place(const Case& at, const Difference& difference);

}  // namespace echelon
