// Seconds of operations and collectives on the cores of this host, from what `echelon bench` measured at sizes nearby.
#pragma once

#include "comm/trace/trace_mesh.h"
#include "ops/trace/trace_ops.h"
#include "spec/machine/host_spec.h"

#include <map>
#include <tuple>

namespace echelon {

/// What an operation takes on one core while the others compute too, and on all of them together.
struct CoreSeconds {
  double busy = 0;
  double shared = 0;
  CoreSeconds& operator+=(const CoreSeconds& other) {
    busy += other.busy;
    shared += other.shared;
    return *this;
  }
};

/// Small exchanges are done by the last rank to come, at once (comm/thread/chunks.h).
[[nodiscard]] bool is_done_by_the_last(std::int64_t bytes, std::int64_t num_ranks);

/// What the ranks of a host are, to each other.
enum class HostRanks : std::uint8_t { threads, processes };

class HostTime {
 public:
  /// Of a run of so many ranks, threads or processes. It refers to `host`.
  HostTime(const HostSpec& host, int num_ranks, HostRanks ranks = HostRanks::threads);

  [[nodiscard]] const HostSpec& host() const { return *host_; }
  [[nodiscard]] CoreSeconds of(const OpRecord& operation);
  /// Of a copy whose operands no cache has, on a host whose distances are not measured.
  [[nodiscard]] CoreSeconds of_cold_copy(const OpRecord& copy);
  /// What the operation takes longer for each byte of an operand after whose last use so many other bytes were used.
  [[nodiscard]] CoreSeconds per_distant_byte(const OpRecord& operation, double distance);
  [[nodiscard]] HostRanks ranks() const { return ranks_; }
  /// Threads: what a core needs to copy and sum all that a collective or transfer of `num_ranks` ranks moves, by
  /// itself; the ranks that wait divide that work among them. Processes: what the operation takes once all have come.
  [[nodiscard]] double of(const CommRecord& record, int num_ranks);
  /// What it costs a core to lay one rank to sleep and to wake another, where there are more ranks than cores.
  [[nodiscard]] double switch_seconds() const { return switch_seconds_; }

 private:
  [[nodiscard]] CoreSeconds measured(const OpRecord& operation) const;
  [[nodiscard]] const std::vector<DistancePoint>& distances_of(const OpRecord& operation) const;
  void read_threads(const std::map<std::string, std::vector<CollectivePoint>>& measured);
  void read_processes(const std::map<std::string, std::vector<CollectivePoint>>& measured);

  const HostSpec* host_;
  HostRanks ranks_;
  double cold_part_ = 0;              // of what an exchange touches
  double seconds_per_cold_byte_ = 0;  // of one core, while the others read too
  double switch_seconds_ = 0;
  std::map<std::tuple<OpKind, bool, DType>, const std::vector<DistancePoint>*> distances_;
  std::map<CommKind, OperationCurve> collectives_;  // m: ranks, n: bytes, amount: bytes read and written
  // By kind, whether it is of a weight, format, m, n, k and bytes.
  std::map<std::tuple<OpKind, bool, DType, std::int64_t, std::int64_t, std::int64_t, std::int64_t>, CoreSeconds> known_;
};

}  // namespace echelon
