// How many ranks settings take.
#include "parity/sweep/axes.h"

#include <algorithm>

namespace echelon::testing {
namespace {

bool are_groups(std::int64_t ep, const ParallelConfig& p, std::int64_t shards) {
  return shards * p.context_parallel_degree * p.tensor_parallel_degree % ep == 0;
}

constexpr std::int64_t least_open_degree = 4;

bool are_groups(const Draft& draft, std::int64_t shards) {
  const ParallelConfig& p = draft.config.parallelism;
  return are_groups(p.expert_parallel_degree * feature_ranks(draft), p, shards);
}

/// Of the shard degrees that the draft leaves open the least with which `fits`, or 0.
template <class Fits>
std::int64_t least_shards(const Fits& fits) {
  for (std::int64_t shards = least_open_degree; shards <= largest_world; ++shards)
    if (fits(shards)) return shards;
  return 0;
}
std::int64_t least_shards(const Draft& draft) {
  return least_shards([&](std::int64_t shards) { return are_groups(draft, shards); });
}

}  // namespace

std::int64_t feature_ranks(const Draft& draft) {
  ParallelConfig p = draft.config.parallelism;
  if (draft.divides_experts) p.expert_tensor_parallel_degree = p.tensor_parallel_degree;
  const std::int64_t given = p.expert_tensor_parallel_degree;
  return given == 0 || (given == p.tensor_parallel_degree && p.expert_parallel_degree == 1) ? 1 : given;
}

bool has_expert_groups(const Draft& draft) {
  const ParallelConfig& p = draft.config.parallelism;
  const auto fits = [&](std::int64_t shards) { return are_groups(p.expert_parallel_degree, p, shards); };
  return draft.fills_the_world ? least_shards(fits) > 0 : fits(p.data_parallel_shard_degree);
}

bool has_feature_groups(const Draft& draft) {
  if (feature_ranks(draft) == 1 || !has_expert_groups(draft)) return true;
  return draft.fills_the_world ? least_shards(draft) > 0
                               : are_groups(draft, draft.config.parallelism.data_parallel_shard_degree);
}

bool have_expert_groups(const Draft& draft, const std::vector<std::int64_t ParallelConfig::*>& fixed) {
  using P = ParallelConfig;
  const auto most = [&](std::int64_t P::*degree, int open) {
    return std::ranges::find(fixed, degree) == fixed.end() ? open : 1;
  };
  const int most_tp = most(&P::tensor_parallel_degree, 4), most_cp = most(&P::context_parallel_degree, 4),
            most_shards = most(&P::data_parallel_shard_degree, largest_world);
  for (int tp = 1; tp <= most_tp; ++tp)
    for (int cp = 1; cp <= most_cp; ++cp)
      for (int shards = 1; shards <= most_shards; ++shards) {
        Draft other = draft;
        P& p = other.config.parallelism;
        if (most_tp > 1) p.tensor_parallel_degree = tp;
        if (most_cp > 1) p.context_parallel_degree = cp;
        if (most_shards > 1) p.data_parallel_shard_degree = shards;
        if (!has_expert_groups(other) || !has_feature_groups(other)) continue;
        const std::int64_t of_world = draft.fills_the_world ? least_shards(other) : p.data_parallel_shard_degree;
        if (ranks_per_shard(p) * of_world <= largest_world) return true;
      }
  return false;
}

int ranks_per_shard(const ParallelConfig& p) {
  return static_cast<int>(p.data_parallel_replicate_degree * p.context_parallel_degree * p.tensor_parallel_degree *
                          p.pipeline_parallel_degree);
}

int least_world(const SweepTable& table, const Settings& settings) {
  const Draft draft = draft_of(table, settings);
  const ParallelConfig& p = draft.config.parallelism;
  return ranks_per_shard(p) *
         static_cast<int>(draft.fills_the_world ? least_shards(draft) : p.data_parallel_shard_degree);
}

bool can_have_world(const SweepTable& table, const Settings& settings, int world_size) {
  const Draft draft = draft_of(table, settings);
  const ParallelConfig& p = draft.config.parallelism;
  const int least = least_world(table, settings), others = ranks_per_shard(p);
  if (!draft.fills_the_world) return world_size == least;
  return world_size >= least && world_size % others == 0 && are_groups(draft, world_size / others);
}

bool may_have_world(const SweepTable& table, const Settings& settings, int world_size) {
  return world_size % ranks_per_shard(draft_of(table, settings).config.parallelism) == 0 &&
         least_world(table, settings) <= world_size;
}

}  // namespace echelon::testing
