#include "blueprint/traffic/context_traffic.h"

#include "nn/context_parallel/block_ring.h"

namespace echelon {
namespace {

/// Of the blocks with one window. In a ring there are two sends for each hop, and in a gather two collectives for each
/// kv head: of keys and values, or of their gradients.
struct KeyRecords {
  std::int64_t sends = 0, gathers = 0, sums = 0;
};

/// Of a program in the group in which keys travel.
struct ProgramRecords {
  std::vector<KeyRecords> of_windows;
  bool is_ring = false, is_gathered = false;
  std::int64_t num_elements = 0;
};

ProgramRecords find_records(const RankBlueprint& rank, ProgramKind kind, std::int64_t& bytes) {
  const Group group = ring_group(rank.part().options.tokens->exchange);
  ProgramRecords records;
  records.of_windows.resize(rank.part().options.windows.size());
  for (const Action& action : rank.program(kind))
    for (const CommRecord& comm : rank.trace(kind).of(action).communications()) {
      if (comm.group.axes != AxisSet{Axis::cp}) continue;
      bytes += comm.sent_bytes;
      const bool is_send = comm.kind == CommKind::send, is_gather = comm.kind == CommKind::all_gather,
                 is_sum = comm.kind == CommKind::reduce_scatter;
      if (comm.group != group || comm.dtype == DType::int32) continue;  // or choices of experts
      if (!is_send && !is_gather && !is_sum) continue;
      KeyRecords& of_window = records.of_windows[comm.window];
      of_window.sends += is_send ? 1 : 0;
      of_window.gathers += is_gather ? 1 : 0;
      of_window.sums += is_sum ? 1 : 0;
      records.is_ring = records.is_ring || is_send;
      records.is_gathered = records.is_gathered || is_gather;
      if (is_send || is_gather) records.num_elements = comm.num_elements;
    }
  return records;
}

std::vector<KeyPasses> passes_of_ring(const RankBlueprint& rank, ProgramKind kind, const ProgramRecords& records,
                                      std::int64_t sends_of_pass) {
  const LayerOptions& options = rank.part().options;
  std::vector<KeyPasses> passes(records.of_windows.size());
  for (const StagePart& stage : rank.part().stages)
    for (std::int64_t i = 0; i < stage.layers.num_layers && is_training(kind); ++i)
      ++passes[options.window_index(options.model.window_of(stage.layers.first_layer + i)).value()].gradients;
  for (std::size_t w = 0; w < passes.size(); ++w)
    passes[w].keys = records.of_windows[w].sends / sends_of_pass - passes[w].gradients;
  return passes;
}

std::vector<KeyPasses> passes_of_gather(const ProgramRecords& records, std::int64_t num_microbatches) {
  std::vector<KeyPasses> passes;
  for (const KeyRecords& each : records.of_windows)
    passes.push_back({each.gathers / (2 * num_microbatches), each.sums / (2 * num_microbatches)});
  return passes;
}

}  // namespace

std::int64_t ContextTraffic::sent_bytes(std::span<const KeyRowCounts> rows) const {
  std::int64_t bytes = planned_bytes;
  for (std::size_t w = 0; w < passes.size(); ++w)
    bytes -= (planned.keys - rows[w].keys) * passes[w].keys * key_row_bytes +
             (planned.gradients - rows[w].gradients) * passes[w].gradients * gradient_row_bytes;
  return bytes;
}

ContextTraffic context_traffic(const RunConfig& config, const RankBlueprint& rank, ProgramKind kind) {
  ContextTraffic traffic;
  const LayerOptions& options = rank.part().options;
  if (!options.tokens) return traffic;
  const ProgramRecords records = find_records(rank, kind, traffic.planned_bytes);
  const bool is_gathered = records.is_gathered;
  if (!records.is_ring && !is_gathered) return traffic;
  const RankTokens& tokens = *options.tokens;
  const std::int64_t num_peers = (is_gathered ? tokens.cp : tokens.blocks.num_blocks()) - 1,
                     rows = options.num_sequences * tokens.blocks.num_query_rows(), M = config.num_microbatches();
  traffic.passes = is_gathered ? passes_of_gather(records, M) : passes_of_ring(rank, kind, records, 2 * num_peers * M);
  traffic.planned = {M * num_peers * rows, M * num_peers * rows};
  const std::int64_t row_elements = 2 * records.num_elements / (is_gathered ? tokens.cp * rows : rows);
  traffic.key_row_bytes = row_elements * size_of(options.dtype);
  traffic.gradient_row_bytes = row_elements * size_of(is_gathered ? options.dtype : accumulate_dtype(options.dtype));
  return traffic;
}

}  // namespace echelon
