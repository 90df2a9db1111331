#include "blueprint/traffic/context_traffic.h"

#include "nn/context_parallel/block_ring.h"

namespace echelon {
namespace {

/// Of a program in the group in which keys travel. In a ring there are two sends for each hop, and in a gather two
/// collectives for each kv head: of keys and values, or of their gradients.
struct KeyRecords {
  std::int64_t sends = 0, gathers = 0, sums = 0, num_elements = 0;
};

KeyRecords find_records(const RankBlueprint& rank, ProgramKind kind, std::int64_t& bytes) {
  const Group group = ring_group(rank.part().options.tokens->exchange);
  KeyRecords records;
  for (const Action& action : rank.program(kind))
    for (const CommRecord& comm : rank.trace(kind).of(action).communications()) {
      if (comm.group.axes != AxisSet{Axis::cp}) continue;
      bytes += comm.sent_bytes;
      if (comm.group != group || comm.dtype == DType::int32) continue;  // or choices of experts
      records.sends += comm.kind == CommKind::send ? 1 : 0;
      records.gathers += comm.kind == CommKind::all_gather ? 1 : 0;
      records.sums += comm.kind == CommKind::reduce_scatter ? 1 : 0;
      if (comm.kind == CommKind::send || comm.kind == CommKind::all_gather) records.num_elements = comm.num_elements;
    }
  return records;
}

}  // namespace

ContextTraffic context_traffic(const RunConfig& config, const RankBlueprint& rank, ProgramKind kind) {
  ContextTraffic traffic;
  const LayerOptions& options = rank.part().options;
  if (!options.tokens) return traffic;
  const KeyRecords records = find_records(rank, kind, traffic.planned_bytes);
  const RankTokens& tokens = *options.tokens;
  const bool is_gathered = records.gathers > 0;
  if (records.sends == 0 && !is_gathered) return traffic;
  const std::int64_t num_peers = (is_gathered ? tokens.cp : tokens.blocks.num_blocks()) - 1,
                     rows = options.num_sequences * tokens.blocks.num_query_rows(), M = config.num_microbatches();
  if (is_gathered) {
    traffic.key_passes = records.gathers / (2 * M);
    traffic.gradient_passes = records.sums / (2 * M);
  } else {
    if (is_training(kind))
      for (const StagePart& stage : rank.part().stages) traffic.gradient_passes += stage.layers.num_layers;
    traffic.key_passes = records.sends / (2 * num_peers * M) - traffic.gradient_passes;
  }
  traffic.planned = {M * num_peers * rows, M * num_peers * rows};
  const std::int64_t row_elements = 2 * records.num_elements / (is_gathered ? tokens.cp * rows : rows);
  traffic.key_row_bytes = row_elements * size_of(options.dtype);
  traffic.gradient_row_bytes = row_elements * size_of(is_gathered ? options.dtype : accumulate_dtype(options.dtype));
  return traffic;
}

}  // namespace echelon
