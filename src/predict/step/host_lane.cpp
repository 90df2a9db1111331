#include "predict/step/host_lane.h"

#include "predict/step/context_rank.h"

namespace echelon {
namespace {

/// Copies from and to the host are queued with the kernel that needs them.
std::int32_t kernels_of(const OpRecord& operation, const HostCosts& costs) {
  if (operation.kind == OpKind::upload || operation.kind == OpKind::download) return 0;
  return costs.counts_kernels ? operation.num_kernels : 1;
}

/// The three clocks of an action whose device was idle: until when each is busy.
class Issue {
 public:
  explicit Issue(const HostCosts& costs) : costs_(costs) {}

  void compute(const OpRecord& operation, double seconds) {
    std::int32_t num_kernels = kernels_of(operation, costs_);
    if (costs_.is_one_kernel) num_kernels = std::min(num_kernels, has_issued_ ? 0 : 1);
    host_ += num_kernels * costs_.kernel_seconds;
    has_issued_ = has_issued_ || num_kernels > 0;
    computed_ = std::max(computed_, host_) + seconds;
    if (costs_.rules.waits_for_kernels) host_ = computed_;
  }
  void start(const PostedMessage& posted, double seconds) {
    const CommRecord& record = posted.record;
    const bool has_parts = record.kind == CommKind::all_gather || record.kind == CommKind::reduce_scatter;
    if (costs_.rules.copies_parts && has_parts)
      host_ = std::max({host_, computed_, communicated_}) + record.group_size * part_copy_seconds;
    host_ += costs_.collective_seconds;
    communicated_ = std::max({communicated_, computed_, host_}) + seconds;
    ends_.insert(ends_.end(), posted.num_records, communicated_);
    if (costs_.rules.waits_for_kernels) host_ = communicated_;
  }
  void start_alone() { ends_.push_back(0); }
  void wait(std::size_t start) { computed_ = std::max(computed_, ends_[start]); }

  [[nodiscard]] IssueTime time() const { return {host_, std::max({host_, computed_, communicated_})}; }

 private:
  const HostCosts& costs_;
  double host_ = 0, computed_ = 0, communicated_ = 0;
  bool has_issued_ = false;   // a kernel
  std::vector<double> ends_;  // of communications
};

}  // namespace

IssueTime issue_time(const CallTrace& trace, const HostCosts& costs, const SecondsOfOperation& computes,
                     const SecondsOfCommunication& communicates) {
  if (costs.is_free()) return {};
  Issue issue(costs);
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (const auto* operation = std::get_if<OpRecord>(&event))
      issue.compute(*operation, computes(*operation));
    else if (const auto* awaited = std::get_if<CommWait>(&event))
      issue.wait(awaited->start);
    else if (std::get<CommRecord>(event).group_size < 2)
      issue.start_alone();
    else {
      const PostedMessage posted = posted_at(trace.events, i);
      issue.start(posted, communicates(posted.record));
      i += posted.num_records - 1;
    }
  }
  return issue.time();
}

}  // namespace echelon
