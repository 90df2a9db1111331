#include "blueprint/ring_traffic.h"

#include "nn/context_parallel/block_ring.h"

namespace echelon {
namespace {

/// Sends of the program within the ring, which are two for each hop: keys and values, or their gradients.
struct RingSends {
  std::int64_t count = 0, num_elements = 0;
};

RingSends add_traffic(const RankBlueprint& rank, ProgramKind kind, std::int64_t& bytes) {
  const Group ring = ring_group(rank.part().options.tokens->exchange);
  RingSends sends;
  for (const Action& action : rank.program(kind))
    for (const CommRecord& comm : rank.trace(kind).of(action).communications()) {
      if (comm.group.axes != AxisSet{Axis::cp}) continue;
      bytes += comm.sent_bytes;
      if (comm.group != ring || comm.kind != CommKind::send) continue;
      ++sends.count;
      sends.num_elements = comm.num_elements;
    }
  return sends;
}

}  // namespace

RingTraffic ring_traffic(const RunConfig& config, const RankBlueprint& rank, ProgramKind kind) {
  RingTraffic traffic;
  const LayerOptions& options = rank.part().options;
  if (!options.tokens) return traffic;
  const RingSends sends = add_traffic(rank, kind, traffic.planned_bytes);
  if (sends.count == 0) return traffic;
  const std::int64_t num_hops = options.tokens->blocks.num_blocks() - 1, M = config.num_microbatches(),
                     rows = options.num_sequences * options.tokens->blocks.num_query_rows();
  if (is_training(kind))
    for (const StagePart& stage : rank.part().stages) traffic.gradient_passes += stage.layers.num_layers;
  traffic.key_passes = sends.count / (2 * num_hops * M) - traffic.gradient_passes;
  traffic.planned = {M * num_hops * rows, M * num_hops * rows};
  const std::int64_t row_elements = 2 * sends.num_elements / rows;
  traffic.key_row_bytes = row_elements * size_of(options.dtype);
  traffic.gradient_row_bytes = row_elements * size_of(accumulate_dtype(options.dtype));
  return traffic;
}

}  // namespace echelon
