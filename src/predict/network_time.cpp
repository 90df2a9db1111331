#include "predict/network_time.h"

#include "predict/collective_time.h"

namespace echelon {
namespace {

bool is_transfer(CommKind kind) { return kind == CommKind::send || kind == CommKind::receive; }

}  // namespace

double communication_seconds(const CommRecord& record, int rank, const DeviceMap& devices) {
  if (record.group_size < 2) return 0;
  const double bytes = static_cast<double>(record.num_elements * size_of(record.dtype));
  return collective_seconds(record.kind, bytes, placement_of(record, rank, devices), devices.machine().network);
}

GroupPlacement placement_of(const CommRecord& record, int rank, const DeviceMap& devices) {
  if (!is_transfer(record.kind)) return devices.placement_of(record.group, rank);
  return devices.placement_of_pair(rank, devices.mesh().ranks_of(record.group, rank)[static_cast<std::size_t>(record.peer)]);
}

}  // namespace echelon
