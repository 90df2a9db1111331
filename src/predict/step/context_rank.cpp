#include "predict/step/context_rank.h"

#include "blueprint/unit_trace.h"
#include "context/key_traffic.h"
#include "spec/groups.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace echelon {
namespace {

/// Hops, and collectives of one kind, have one message or one launch where they are posted together.
bool are_posted_together(const CommRecord& first, const TraceEvent& next_event) {
  const auto* next = std::get_if<CommRecord>(&next_event);
  const auto is_transfer = [](CommKind kind) { return kind == CommKind::send || kind == CommKind::receive; };
  return next != nullptr && first.group.axes == cp_group.axes && next->group == first.group &&
         next->dtype == first.dtype &&
         (next->kind == first.kind || (is_transfer(first.kind) && is_transfer(next->kind)));
}

}  // namespace

ContextRanks::ContextRanks(const RunConfig& config, double pairs_share) : pairs_share_(pairs_share) {
  const ParallelConfig& p = config.parallelism;
  if (p.context_parallel_degree == 1 || reads_documents(p.context_parallel_load_balancer)) return;
  std::vector<std::int64_t> pairs = causal_pairs(token_split(config));
  share_pairs(pairs, key_exchange(p).head_ranks);
  busiest_ = static_cast<int>(std::max_element(pairs.begin(), pairs.end()) - pairs.begin());
  const double mean = static_cast<double>(std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0})) /
                      static_cast<double>(pairs.size());
  if (std::adjacent_find(pairs.begin(), pairs.end(), std::not_equal_to<>()) == pairs.end()) return;
  for (const std::int64_t own : pairs) mean_over_own_.push_back(mean / static_cast<double>(own));
}

int ContextRanks::busiest_like(int rank, const MeshShape& mesh) const {
  Coordinates coordinates = mesh.coordinates_of(rank);
  coordinates[static_cast<std::size_t>(Axis::cp)] = busiest_;
  return mesh.rank_of(coordinates);
}

double ContextRanks::mean_flops(const OpRecord& operation, int coordinate) const {
  const auto flops = static_cast<double>(operation.flops);
  const bool has_pairs = operation.kind == OpKind::attention || operation.kind == OpKind::attention_backward;
  if (!has_pairs) return flops;
  return flops * pairs_share_ * (mean_over_own_.empty() ? 1 : mean_over_own_[static_cast<std::size_t>(coordinate)]);
}

PostedMessage posted_at(const std::vector<TraceEvent>& events, std::size_t index) {
  PostedMessage posted = {std::get<CommRecord>(events[index])};
  for (std::size_t i = index + 1; i < events.size() && are_posted_together(posted.record, events[i]); ++i) {
    const auto& next = std::get<CommRecord>(events[i]);
    ++posted.num_records;
    if (next.kind != posted.record.kind) continue;  // received while as much is sent
    posted.record.num_elements += next.num_elements;
    posted.record.sent_bytes += next.sent_bytes;
  }
  return posted;
}

}  // namespace echelon
