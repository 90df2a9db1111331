#include "engine/device/device_memory.h"

#include "base/error.h"
#include "base/units.h"
#include "comm/gathered.h"

#include <algorithm>
#include <map>
#include <optional>

namespace echelon {
namespace {

struct RankOnDevice {
  std::int64_t device = 0;  // DeviceFacts::identity
  std::int64_t memory_bytes = 0;
  std::int64_t arena_bytes = 0;
};

/// What is asked of one device.
struct Load {
  std::size_t num_ranks = 0;
  std::int64_t arena_bytes = 0;
};

/// Ranks of one pipeline rank are as large as the first of them, but for padding.
std::int64_t largest_arena(const Blueprint& blueprint) {
  std::int64_t largest = 0;
  for (const RankBlueprint& rank : blueprint.pipeline_ranks()) largest = std::max(largest, rank.arena_bytes());
  return largest;
}

/// The largest half, quarter, ... of training.micro_batch_size with which each rank has at most `num_bytes`.
std::optional<std::int64_t> closest_micro_batch_size(RunConfig config, std::int64_t num_bytes) {
  while (config.training.micro_batch_size % 2 == 0) {
    config.training.micro_batch_size /= 2;
    try {
      if (largest_arena(Blueprint(config)) <= num_bytes) return config.training.micro_batch_size;
    } catch (const Error&) {
      return std::nullopt;  // a schedule that needs another number of microbatches
    }
  }
  return std::nullopt;
}

}  // namespace

void require_device_memory(const Blueprint& blueprint, const DeviceFacts& facts, Mesh& host) {
  const RankOnDevice own = {.device = facts.identity,
                            .memory_bytes = facts.memory_bytes,
                            .arena_bytes = blueprint.rank(host.rank()).arena_bytes()};
  const std::vector<RankOnDevice> ranks = gathered(host, own);
  std::map<std::int64_t, Load> loads;
  for (const RankOnDevice& rank : ranks) {
    Load& load = loads[rank.device];
    load.num_ranks += 1;
    load.arena_bytes += rank.arena_bytes;
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Load& load = loads[ranks[rank].device];
    const std::int64_t memory_bytes = ranks[rank].memory_bytes;
    if (memory_bytes == 0 || load.arena_bytes <= memory_bytes) continue;
    const TrainingConfig& t = blueprint.config().training;
    const auto closest =
        closest_micro_batch_size(blueprint.config(), memory_bytes / static_cast<std::int64_t>(load.num_ranks));
    throw Error(
        fmt::format("the run needs {:.1f} GiB on the device of rank {}{}, where {:.1f} GiB are free: make the model, "
                    "training.micro_batch_size = {} or training.seq_len = {} smaller (use {})",
                    static_cast<double>(load.arena_bytes) / gib, rank,
                    load.num_ranks > 1 ? fmt::format(" for {} ranks", load.num_ranks) : "",
                    static_cast<double>(memory_bytes) / gib, t.micro_batch_size, t.seq_len,
                    closest ? fmt::format("training.micro_batch_size = {}", *closest) : "a mesh over more devices"));
  }
}

}  // namespace echelon
