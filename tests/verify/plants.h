// Injected faults for `verify` to find. Each changes values between a rank's step and its backend or transport, as an
// engine with the fault would. Only the fault and the test know what was injected.
#pragma once

#include "engine/layout_run.h"
#include "ops/ops.h"

#include <functional>
#include <memory>
#include <string>

namespace echelon::testing {

/// The current state of a fault's rank.
struct Place {
  Mesh& mesh;  // the real one
  Ops& ops;    // the real ones
  RankRun* run = nullptr;
  std::int64_t step = 0;
  Action action = {};
  std::string product = {};         // the weight of the last matmul or look-up
  bool product_is_forward = false;  // y = x w^T, not dx = dy w
  double own_targets = 0, all_targets = 0;

  /// The parameter whose value or gradient contains `x`; null: none.
  [[nodiscard]] const Param* param_of(const Tensor& x) const;
  [[nodiscard]] int coordinate(Axis axis) const { return mesh.coordinate(axis); }
  [[nodiscard]] int num_data_ranks() const {
    return mesh.shape().degree(Axis::dp_replicate) * mesh.shape().degree(Axis::dp_shard);
  }
  [[nodiscard]] int num_microbatches() const;
};

inline constexpr int scattered_later = 100;

/// Changes nothing.
class Plant {
 public:
  virtual ~Plant() = default;
  virtual void begins(Place& /*place*/) {}
  /// True: it replaced the operation.
  virtual bool replaces(Place& /*place*/, const Operation& /*operation*/) { return false; }
  virtual bool replaces_upload(Place& /*place*/, Tensor /*out*/, const void* /*host*/) { return false; }
  /// How often the sum of a collective is computed: 0 leaves each rank its own part, 2 multiplies by the number of
  /// ranks. `x` is the whole buffer before.
  virtual int times(Place& /*place*/, const Group& /*group*/, Tensor /*x*/) { return 1; }
  /// False: other ranks' shards are not gathered.
  virtual bool gathers(Place& /*place*/, const Group& /*group*/) { return true; }
  /// After a reduce-scatter whose times() was `scattered_later`: `full` has the whole sum.
  virtual void scattered(Place& /*place*/, Tensor /*shard*/, Tensor /*full*/) {}
  /// `x` was gathered over a group, or received in an exchange of equal parts among its ranks.
  virtual void gathered(Place& /*place*/, const Group& /*group*/, Tensor /*x*/) {}
  virtual void exchanged(Place& /*place*/, const Group& /*group*/, Tensor /*x*/) {}
  /// `x` was received for the microbatch of an action.
  virtual void received(Place& /*place*/, const Action& /*action*/, Tensor /*x*/) {}
};

/// Each rank creates its own.
using Seed = std::function<std::unique_ptr<Plant>()>;
[[nodiscard]] Interpose grow(Seed seed);

/// The sum over tp after a matmul with `weight`, in the forward or the backward pass, is computed `times` times.
[[nodiscard]] Seed sum_behind_product(const std::string& weight, bool is_forward, int times);
/// The same, but in one microbatch only.
[[nodiscard]] Seed sum_behind_product_in(int microbatch, const std::string& weight, int times);
/// The addend of tensor-parallel rank `lost` to that sum is zero.
[[nodiscard]] Seed lost_part(int lost, const std::string& weight);
/// The reduction (reduce_gradients, sum_replicas or sum_tied) of the flat buffer that has the gradient of `tensor`.
[[nodiscard]] Seed sum_of_gradient(const std::string& tensor, ActionKind kind, int times);
/// Each data rank, or each microbatch of each, divides by its own number of targets.
[[nodiscard]] Seed mean_of_means_over_ranks();
[[nodiscard]] Seed mean_of_means_over_microbatches();
/// The norm counts the gradients whose name contains `part` once for each of their copies over the axis.
[[nodiscard]] Seed counted_per_copy(const std::string& part, Axis axis);
/// The norm does not count them.
[[nodiscard]] Seed not_counted_in_norm(const std::string& part);
/// The copy of the tied weight on the last (or first) pipeline rank misses the update of a step; 0: of all.
[[nodiscard]] Seed stale_tied_weight(std::int64_t step, bool is_last);
/// Before the backward pass of a microbatch the gradients whose name contains `part` are zeroed.
[[nodiscard]] Seed forgets_before(int microbatch, const std::string& part);
/// The update of a shard starts (or ends) `count` elements inside, where a tensor crosses the boundary.
[[nodiscard]] Seed wrong_shard_border(int shard, std::int64_t count, bool at_begin);
/// Under sequence parallelism every slice of tokens counts its positions from 0; in layers whose name contains `layer`.
[[nodiscard]] Seed positions_per_slice(const std::string& layer);

/// Shard `shard` of a reduce-scatter of gradients starts `count` elements later.
[[nodiscard]] Seed wrong_scatter(int shard, std::int64_t count);
/// The update of shard `shard` uses gradients `count` elements further.
[[nodiscard]] Seed wrong_gradients_in_update(int shard, std::int64_t count);
/// The updated shards are not gathered.
[[nodiscard]] Seed missing_gather();
/// The ranks with this coordinate on dp_replicate update nothing whose name contains `part`.
[[nodiscard]] Seed stale_replica(int coordinate, const std::string& part);
/// Of tensor-parallel ranks that share a kv head, only one has the gradients of its keys and values.
[[nodiscard]] Seed kv_gradients_of_one_replica(int replica);
/// They sum these gradients before those of the weights are summed.
[[nodiscard]] Seed summed_kv_gradients();
/// Under sequence parallelism the tokens of other ranks are missing, as zeros, in one of the gathers of a stage's
/// forward pass.
[[nodiscard]] Seed missing_tokens(int nth_gather);
/// Ranks with `coordinate` on the data axes use the tokens of the next sequence.
[[nodiscard]] Seed wrong_sequences(int coordinate);
/// A stage gets the input of the previous microbatch.
[[nodiscard]] Seed late_messages();
/// The squares of the gradient norm are not summed over the ranks.
[[nodiscard]] Seed local_norm();
/// The update of tensors whose name contains `part` uses the number of the next step.
[[nodiscard]] Seed wrong_update(const std::string& part);

}  // namespace echelon::testing
