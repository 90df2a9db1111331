// What a difference between a layout and one rank comes from: the kind of fault, the axis it belongs to, the tensor
// that shows it first, and why we say so.
#pragma once

#include "verify/comparison.h"

#include <string>
#include <vector>

namespace echelon {

enum class FaultKind : std::uint8_t {
  unknown,
  missing_sum,            // an all-reduce or reduce-scatter that was left out
  repeated_sum,           // one that was formed twice
  mean_for_sum,           // one that divides by its number of ranks
  mean_of_means,          // ranks or microbatches that divide by their own number of targets
  lost_microbatches,      // the gradient of the last microbatch, or of some, alone
  repeated_microbatches,  // microbatches that are added more than once
  counted_twice,          // a parameter that the gradient norm counts more than once
  not_counted,            // one that it does not count
  stale_tied_weight,      // the second copy of a tied weight is not the first
  stale_weight,           // a copy that was not updated or not gathered
  wrong_boundary,         // elements on the wrong side of a border between shards or slices
  wrong_position,         // tokens that are given another position
  missing_gather,         // a rank computes with its own part of what it should have gathered
  wrong_sequence,         // tokens that have the numbers of another sequence
  wrong_message,          // a stage works on another microbatch's tensor
};
[[nodiscard]] std::string_view name_of(FaultKind kind);  // "missing sum", "mean of means", ...

struct Finding {
  FaultKind kind = FaultKind::unknown;
  // "tp", "dp_replicate", "dp_shard", "pp", "microbatches", or some with + between; empty: none explains it.
  std::string axis;
  std::string tensor;    // the first one that differs
  std::string where;     // which part of it, on which ranks, when
  std::string evidence;  // what the numbers are instead
};

/// All that a diagnosis works with; all of it outlives the diagnosis.
struct Case {
  const Blueprint& blueprint;  // of the layout
  const BatchSource& batches;
  const Interpose& interpose;
  const Reference& reference;
  std::vector<Difference> differences;  // in order; not empty
  RankResults results;                  // of the layout
  double tolerance = 1e-9;              // of what layers read, relative to the largest number of the tensor
  double precision = 1e-6;              // to which coefficients are taken for what they are near

  [[nodiscard]] const RunConfig& config() const { return blueprint.config(); }
  [[nodiscard]] const MeshShape& mesh() const { return blueprint.mesh(); }
};

/// An axis of the layout that has more than one part, under the name that findings use.
struct LayoutAxis {
  std::string name;
  int degree = 1;
};
/// dp_replicate, dp_shard, both together where both are there, tp, pp, microbatches.
[[nodiscard]] std::vector<LayoutAxis> axes_of(const RunConfig& config);
/// True if `axis` names `part` alone or among others: "dp_replicate+dp_shard" has "dp_shard".
[[nodiscard]] bool has_axis(const std::string& axis, const std::string& part);

/// "all 8 ranks", "rank 3", "ranks 4, 5, 6, 7 (pp 1)": with the coordinates that they share and others do not have.
[[nodiscard]] std::string describe_ranks(const MeshShape& mesh, const std::vector<int>& ranks);
/// "elements 0 to 511 (rows 0 to 15) on ranks 0, 1"
[[nodiscard]] std::string describe_place(const Case& at, const Difference& difference);

}  // namespace echelon
