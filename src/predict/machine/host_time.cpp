#include "predict/machine/host_time.h"

#include "base/error.h"

#include <algorithm>

namespace echelon {
namespace {

/// Bytes that a collective of n ranks reads and writes, of a full buffer of so many.
double moved_bytes(CommKind kind, double n, double bytes) {
  switch (kind) {
    case CommKind::all_reduce: return 2 * n * bytes;
    case CommKind::reduce_scatter:
    case CommKind::all_gather:
    case CommKind::broadcast: return (n + 1) * bytes;
    case CommKind::all_to_all: return 2 * n * bytes;
    case CommKind::send:
    case CommKind::receive: return 2 * bytes;
    case CommKind::barrier: return 0;
  }
  return 0;
}

/// The measured kind that moves bytes in the same way.
CommKind measured_kind(CommKind kind) {
  switch (kind) {
    case CommKind::all_reduce:
    case CommKind::reduce_scatter:
    case CommKind::all_gather:
    case CommKind::send:
    case CommKind::barrier: return kind;
    case CommKind::broadcast:
    case CommKind::all_to_all: return CommKind::all_gather;
    case CommKind::receive: return CommKind::send;
  }
  return kind;
}

constexpr CommKind measured_kinds[] = {CommKind::all_reduce, CommKind::reduce_scatter, CommKind::all_gather,
                                       CommKind::send};

OperationPoint operation_point(CommKind kind, const CollectivePoint& point, double seconds) {
  return {.m = kind == CommKind::send ? 2 : point.num_ranks,
          .n = point.bytes,
          .k = 1,
          .amount = moved_bytes(kind, static_cast<double>(point.num_ranks), static_cast<double>(point.bytes)),
          .core_seconds = seconds,
          .busy_seconds = seconds,
          .shared_seconds = seconds};
}

/// Without measured sizes: the larger of flops at the rate of multiply-adds and bytes at memory's.
double floor_seconds(const OpRecord& operation, const ComputeRates& rates) {
  const double flops = rates.peak_flops(name_of(operation.dtype)).value_or(0), bandwidth = rates.memory_bandwidth();
  return std::max(flops > 0 ? static_cast<double>(operation.flops) / flops : 0,
                  bandwidth > 0 ? static_cast<double>(operation.bytes) / bandwidth : 0);
}

/// By format; null if the operation was not measured. Older files have y = x w^T alone of matmuls.
template <class Curves>
const typename Curves::mapped_type* curves_of(const Curves& measured, const OpRecord& operation) {
  auto found = measured.find(curve_name(operation.kind, operation.is_weight_gradient));
  if (found == measured.end()) found = measured.find(std::string(name_of(operation.kind)));
  return found == measured.end() ? nullptr : &found->second;
}

}  // namespace

bool is_done_by_the_last(std::int64_t bytes, std::int64_t num_ranks) { return bytes * num_ranks <= (256 << 10); }

// Collectives are measured on buffers in the caches. Where ranks take turns on a core, the others have gone through the
// caches meanwhile: after C of N ranks only C/N of a rank's turns are its own last one.
HostTime::HostTime(const HostSpec& host, int num_ranks, HostRanks ranks) : host_(&host), ranks_(ranks) {
  if (num_ranks > host.num_cores) {
    cold_part_ = 1 - static_cast<double>(host.num_cores) / num_ranks;
    if (host.device.read_bandwidth > 0)
      seconds_per_cold_byte_ = static_cast<double>(host.num_cores) / host.device.read_bandwidth;
  }
  const auto measured = host.collectives.find(ranks == HostRanks::threads ? "thread" : "mpi");
  if (measured == host.collectives.end()) return;
  ranks == HostRanks::threads ? read_threads(measured->second) : read_processes(measured->second);
}

void HostTime::read_threads(const std::map<std::string, std::vector<CollectivePoint>>& measured) {
  const auto cores = static_cast<double>(host_->num_cores);
  std::map<std::int64_t, double> barrier;  // by ranks
  if (const auto found = measured.find("barrier"); found != measured.end())
    for (const CollectivePoint& point : found->second) barrier[point.num_ranks] = point.seconds;
  for (const auto& [count, seconds] : barrier)
    if (static_cast<double>(count) > cores) switch_seconds_ = seconds * cores / static_cast<double>(count);
  for (const CommKind kind : measured_kinds) {
    const auto found = measured.find(std::string(name_of(kind)));
    if (found == measured.end()) continue;
    for (const CollectivePoint& point : found->second) {
      const auto n = static_cast<double>(point.num_ranks);
      const bool is_send = kind == CommKind::send;  // of n/2 pairs at the same time
      if (is_send && point.num_ranks > 2) continue;
      const double workers = is_done_by_the_last(point.bytes, is_send ? 2 : point.num_ranks)
                                 ? (is_send ? std::min(n / 2, cores) : 1)
                                 : std::min(n, cores);
      const double alone = std::max(point.seconds - barrier[point.num_ranks], 0.1 * point.seconds);
      collectives_[kind].push_back(operation_point(kind, point, alone * workers));
    }
  }
}

void HostTime::read_processes(const std::map<std::string, std::vector<CollectivePoint>>& measured) {
  for (const CommKind kind : measured_kinds)
    if (const auto found = measured.find(std::string(name_of(kind))); found != measured.end())
      for (const CollectivePoint& point : found->second)
        collectives_[kind].push_back(operation_point(kind, point, point.seconds));
}

CoreSeconds HostTime::of(const OpRecord& operation) {
  const auto key = std::tuple(operation.kind, operation.is_weight_gradient, operation.dtype, operation.m, operation.n,
                              operation.k, operation.bytes);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  return known_[key] = measured(operation);
}

CoreSeconds HostTime::of_cold_copy(const OpRecord& copy) {
  CoreSeconds seconds = of(copy);
  const double bandwidth = host_->device.copy_bandwidth, bytes = static_cast<double>(copy.bytes);
  if (bandwidth <= 0) return seconds;
  seconds.busy = std::max(seconds.busy, bytes * static_cast<double>(host_->num_cores) / bandwidth);
  seconds.shared = std::max(seconds.shared, bytes / bandwidth);
  return seconds;
}

CoreSeconds HostTime::per_distant_byte(const OpRecord& operation, double distance) {
  const std::vector<DistancePoint>*& curve =
      distances_[{operation.kind, operation.is_weight_gradient, operation.dtype}];
  if (curve == nullptr) curve = &distances_of(operation);
  return {interpolated_seconds(*curve, distance, &DistancePoint::busy_seconds),
          interpolated_seconds(*curve, distance, &DistancePoint::shared_seconds)};
}

const std::vector<DistancePoint>& HostTime::distances_of(const OpRecord& operation) const {
  static const std::vector<DistancePoint> none;
  const auto* const curves = curves_of(host_->distances, operation);
  if (curves == nullptr) return none;
  const auto curve = curves->find(std::string(name_of(operation.dtype)));
  return curve == curves->end() ? curves->begin()->second : curve->second;
}

CoreSeconds HostTime::measured(const OpRecord& operation) const {
  const auto* const curves = curves_of(host_->operations, operation);
  if (curves == nullptr) return {floor_seconds(operation, host_->core), floor_seconds(operation, host_->device)};
  auto curve = curves->find(std::string(name_of(operation.dtype)));
  // float16 is widened before a matmul; all else takes as long as with the other 16-bit format, which comes first.
  if (curve == curves->end() && operation.dtype == DType::float16 && multiplies_matrices(operation.kind))
    curve = curves->find("float32");
  require(curve != curves->end() || !multiplies_matrices(operation.kind),
          "training.dtype = '{}': the file of this machine has no measured {} in it (use {})", name_of(operation.dtype),
          name_of(operation.kind), curves->empty() ? "float32" : curves->rbegin()->first);
  if (curve == curves->end()) curve = curves->begin();
  const double amount = static_cast<double>(multiplies_matrices(operation.kind) ? operation.flops : operation.bytes);
  const OperationPoint size = {.m = operation.m, .n = operation.n, .k = operation.k, .amount = amount};
  return {interpolated_seconds(curve->second, size, &OperationPoint::busy_seconds),
          interpolated_seconds(curve->second, size, &OperationPoint::shared_seconds)};
}

double HostTime::of(const CommRecord& record, int num_ranks) {
  const CommKind kind = measured_kind(record.kind);
  const std::int64_t bytes = record.num_elements * size_of(record.dtype);
  const double moved = moved_bytes(record.kind, num_ranks, static_cast<double>(bytes));
  if (moved == 0) return 0;
  const auto curve = collectives_.find(kind);
  if (curve == collectives_.end()) {
    const OpRecord copy = {
        .kind = OpKind::copy, .m = record.num_elements, .n = 1, .k = 1, .bytes = static_cast<std::int64_t>(moved)};
    return measured(copy).busy;
  }
  const OperationPoint size = {.m = kind == CommKind::send ? 2 : num_ranks, .n = bytes, .k = 1, .amount = moved};
  return interpolated_seconds(curve->second, size, &OperationPoint::busy_seconds) +
         0.5 * cold_part_ * moved * seconds_per_cold_byte_;
}

}  // namespace echelon
